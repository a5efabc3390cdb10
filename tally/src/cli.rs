//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tally_aggregator::epoch::Begin;
use tally_proto::Offset;

use crate::roles::Role;

/// Exact counters at heavy-hitter scale.
///
/// Without a command it serves: ingest, aggregator and reader in one process, on a log and a store
/// in ./tally-data, at http://127.0.0.1:8080.
#[derive(Debug, Parser)]
#[command(
    name = "tally",
    version,
    after_help = "Examples:
  tally                                    serve on the embedded log and store
  tally add view video:123                 count one view
  tally get view video:123                 read the total
  tally load --rate 20000 --duration 30s   generate load and measure latency

  TALLY__KAFKA__BROKERS=k1:9092 TALLY__CQL__CONTACT_POINTS=c1:9042 tally setup
  TALLY__KAFKA__BROKERS=k1:9092 TALLY__CQL__CONTACT_POINTS=c1:9042 tally aggregator"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) global: Global,
}

/// A role as a binary of its own.
#[derive(Debug, Parser)]
#[command(version, about = "One role of Tally, as `tally` with the command of that name.")]
pub(crate) struct RoleCli {
    #[command(flatten)]
    pub(crate) global: Global,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// A TOML file of settings, under variables and flags
    #[arg(long, global = true, env = "TALLY_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The folder of the embedded log and store [variable: TALLY__DATA_DIR]
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) data_dir: Option<String>,
    /// Where to serve HTTP [variable: TALLY__LISTEN]
    #[arg(long, global = true, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,
    /// Any setting by its key, such as flush.interval_ms=500
    #[arg(long = "set", global = true, value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
    /// The running Tally that client commands talk to
    #[arg(long, global = true, env = "TALLY_URL", default_value = "http://127.0.0.1:8080")]
    pub(crate) url: String,
    /// How results are printed
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Ingest, aggregator and reader in one process (the default)
    Serve,
    /// Take events over HTTP into Kafka
    Ingest,
    /// Fold events into facts
    Aggregator,
    /// Serve totals over HTTP
    Reader,
    /// Create topic, keyspace, tables and the layout row; again, it changes nothing
    Setup,
    /// Print a counter's total
    Get(GetArgs),
    /// Add to a counter
    Add(AddArgs),
    /// Say how many shards a counter will need, or by what that is to be predicted
    Create(CreateArgs),
    /// Begin a counter anew: its total is 0, and nobody is in
    Reset(GetArgs),
    /// Let an actor like a subject, once, however often it is said
    Like(LikeArgs),
    /// Print the route key and partition of a counter, for producers of your own
    Route(RouteArgs),
    /// Roles, partitions, lag and dead letters of running processes
    Status(StatusArgs),
    /// What was set aside, and why
    #[command(subcommand)]
    DeadLetters(DeadLetters),
    /// Go on after the log was replaced on purpose
    #[command(subcommand)]
    Epoch(EpochCommand),
    /// Go on after somebody wrote a fact's row by hand
    #[command(subcommand)]
    Lane(LaneCommand),
    /// Generate load in an open loop and measure latency
    Load(LoadArgs),
    /// Kill, freeze and double processes of its own under load, then compare every total
    #[command(after_help = "Embedded unless kafka.brokers and cql.contact_points are set; on a \
        cluster it makes a topic and a keyspace of its own, and leaves them. Exit code 0 only if \
        every total is equal to what was acknowledged.\n\nExamples:\n  \
        tally prove\n  \
        tally prove --duration 10m --rate 30000")]
    Prove(ProveArgs),
    /// The settings in force
    #[command(subcommand)]
    Config(ConfigCommand),
}

impl From<Role> for Command {
    fn from(role: Role) -> Self {
        match role {
            Role::Serve => Command::Serve,
            Role::Ingest => Command::Ingest,
            Role::Aggregator => Command::Aggregator,
            Role::Reader => Command::Reader,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Such as view
    pub(crate) kind: String,
    /// Such as video:123
    pub(crate) subject: String,
    /// The namespace of the subject
    #[arg(long)]
    pub(crate) namespace: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Such as view
    pub(crate) kind: String,
    /// Such as video:123
    pub(crate) subject: String,
    /// How much; may be negative
    #[arg(default_value_t = 1, allow_negative_numbers = true)]
    pub(crate) delta: i64,
    /// Counts once, however often it is sent with this id
    #[arg(long)]
    pub(crate) id: Option<String>,
    /// The namespace of the subject
    #[arg(long)]
    pub(crate) namespace: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// Such as view
    pub(crate) kind: String,
    /// Such as video:123
    pub(crate) subject: String,
    /// So many, once it is warm; a hot counter takes more by itself
    #[arg(long, conflicts_with_all = ["followers", "visibility", "trending"])]
    pub(crate) shards: Option<u32>,
    /// How many will hear of it
    #[arg(long)]
    pub(crate) followers: Option<u64>,
    /// Who may see it: public, unlisted or private
    #[arg(long)]
    pub(crate) visibility: Option<String>,
    /// It is shown to people who do not follow
    #[arg(long)]
    pub(crate) trending: bool,
    /// The namespace of the subject
    #[arg(long)]
    pub(crate) namespace: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LikeArgs {
    /// Such as video:123
    pub(crate) subject: String,
    /// Who, such as user:9
    pub(crate) actor: String,
    /// Take the like back
    #[arg(long)]
    pub(crate) undo: bool,
    /// Another kind that counts actors
    #[arg(long, default_value = "like")]
    pub(crate) kind: String,
    /// The namespace of the subject
    #[arg(long)]
    pub(crate) namespace: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RouteArgs {
    /// Such as view; all kinds of a subject share its route
    pub(crate) kind: String,
    /// Such as video:123
    pub(crate) subject: String,
    /// Who acts, such as user:9, or the event's id: picks the slot of an event that is remembered
    pub(crate) actor: Option<String>,
    /// The namespace of the subject
    #[arg(long)]
    pub(crate) namespace: Option<String>,
    /// One of several slots of a hot counter
    #[arg(long, default_value_t = 0, conflicts_with = "actor")]
    pub(crate) slot: u32,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// More processes to ask, beside --url
    #[arg(long = "and", value_name = "URL")]
    pub(crate) others: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetters {
    /// The dead letters of the last days
    List {
        /// How many days back, today included
        #[arg(long, default_value_t = 2)]
        days: u16,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// One dead letter with its bytes
    Show {
        /// The partition of its record
        partition: u32,
        /// The offset of its record
        offset: u64,
        /// Its place within the record
        #[arg(default_value_t = 0)]
        index: u32,
        /// How many days back to look, today included
        #[arg(long, default_value_t = 8)]
        days: u16,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum EpochCommand {
    /// Freeze every checkpoint, write every row again under the next epoch, and go on
    #[command(after_help = "Partitions whose log is still the one that was counted go on where \
        they are. Stop ingest first, and start all processes again afterwards. If it breaks off, \
        run it again: it goes on.\n\nExamples:\n  \
        tally epoch next --from start     the topic was deleted and made anew\n  \
        tally epoch next --from 1200      the topic was truncated at offset 1200")]
    Next {
        /// Where replaced partitions begin: start, end, or an offset
        #[arg(long, value_parser = parse_begin)]
        from: Begin,
        /// Nothing runs: do not wait until every aggregator has noticed
        #[arg(long)]
        stopped: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum LaneCommand {
    /// Count a poisoned row again from the log, and write it to the next lane
    #[command(after_help = "The stopped partition goes on by itself within half a minute.\n\n\
        Example:\n  tally lane next view video:123 --partition 7")]
    Next {
        /// Such as view
        kind: String,
        /// Such as video:123
        subject: String,
        /// The namespace of the subject
        #[arg(long)]
        namespace: Option<String>,
        /// The partition that stopped
        #[arg(long)]
        partition: u32,
        /// What the row should say, if the log does not hold all of it any more
        #[arg(long, allow_negative_numbers = true)]
        total: Option<i64>,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct LoadArgs {
    /// Events a second
    #[arg(long, default_value_t = 10_000)]
    pub(crate) rate: u64,
    /// How long, such as 30s or 2m
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub(crate) duration: std::time::Duration,
    /// Events a request
    #[arg(long, default_value_t = 100)]
    pub(crate) batch: usize,
    /// Different subjects
    #[arg(long, default_value_t = 10_000)]
    pub(crate) subjects: u64,
    /// Zipf exponent of their popularity; 0: all alike
    #[arg(long, default_value_t = 1.0)]
    pub(crate) skew: f64,
    /// Kinds, dealt in turn
    #[arg(long, default_value = "view", value_delimiter = ',')]
    pub(crate) kinds: Vec<String>,
    /// Different actors, dealt by chance; of kinds that count them
    #[arg(long, default_value_t = 100_000)]
    pub(crate) actors: u64,
    /// Gives every event an id
    #[arg(long)]
    pub(crate) ids: bool,
    /// What subjects begin with
    #[arg(long, default_value = "load:")]
    pub(crate) prefix: String,
    /// Requests in flight at most; waiting for one counts as latency
    #[arg(long, default_value_t = 256)]
    pub(crate) in_flight: usize,
    /// Seed of the choice of subjects
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ProveArgs {
    /// How long, such as 60s or 10m
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub(crate) duration: std::time::Duration,
    /// Events a second
    #[arg(long, default_value_t = 20_000)]
    pub(crate) rate: u64,
    /// Leave logs and data where they are
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Every setting, its value and where it came from; secrets are masked
    Print,
    /// Exit code 0 if the settings are right, else 2 and one line
    Check,
}

fn parse_begin(text: &str) -> Result<Begin, String> {
    match text {
        "start" => Ok(Begin::Start),
        "end" => Ok(Begin::End),
        offset => match offset.parse() {
            Ok(offset) => Ok(Begin::At(Offset(offset))),
            Err(_) => Err(format!("'{offset}' is neither start, nor end, nor an offset")),
        },
    }
}

fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| format!("'{text}' is no time such as 30s"))?;
    let seconds = match unit {
        "s" | "" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(format!("'{unit}' is no unit of time: use s, m or h")),
    };
    Ok(std::time::Duration::from_secs(number.saturating_mul(seconds)))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
        RoleCli::command().debug_assert();
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("2m"), Ok(std::time::Duration::from_secs(120)));
        assert!(parse_duration("2 weeks").is_err());
    }
}
