//! The commands: settings first, then what was asked for; errors become exit codes here.

mod config;
mod counters;
mod dead_letters;
mod epoch;
mod lane;
mod load;
mod prove;
mod route;
mod setup;
mod status;

use std::process::ExitCode;

use tally_proto::{CounterId, DEFAULT_NAMESPACE, Partition};
use tally_service::config::{Loaded, Sources};
use tally_service::stopper::Stopper;

use crate::WRONG_USAGE;
use crate::cli::{Command, DeadLetters, EpochCommand, Global, LaneCommand};
use crate::client::Client;
use crate::roles::{self, Role};
use crate::settings::Settings;

/// Runs a command to its exit code.
pub(crate) fn run(command: Command, global: Global) -> ExitCode {
    let loaded = match load_settings(&global) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("tally: {error:#}");
            return ExitCode::from(WRONG_USAGE);
        }
    };
    if let Err(error) = tally_service::telemetry::start(&loaded.settings.log_filter) {
        eprintln!("tally: log_filter: {error:#}");
        return ExitCode::from(WRONG_USAGE);
    }
    tally_service::run::run(async move |stopper| {
        match dispatch(command, global, loaded, stopper).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("tally: {error:#}");
                ExitCode::FAILURE
            }
        }
    })
}

async fn dispatch(
    command: Command,
    global: Global,
    loaded: Loaded<Settings>,
    stopper: Stopper,
) -> anyhow::Result<()> {
    let client = Client::new(&global.url)?;
    let output = global.output;
    match command {
        Command::Serve => roles::run(Role::Serve, loaded.settings, stopper).await,
        Command::Ingest => roles::run(Role::Ingest, loaded.settings, stopper).await,
        Command::Aggregator => roles::run(Role::Aggregator, loaded.settings, stopper).await,
        Command::Reader => roles::run(Role::Reader, loaded.settings, stopper).await,
        Command::Setup => setup::run(&loaded.settings).await,
        Command::Get(args) => counters::get(&client, output, &args).await,
        Command::Add(args) => counters::add(&client, output, &args).await,
        Command::Create(args) => counters::create(&client, output, &args).await,
        Command::Reset(args) => counters::reset(&client, output, &args).await,
        Command::Like(args) => counters::like(&client, output, &args).await,
        Command::Route(args) => route::run(&loaded.settings, output, &args),
        Command::Status(args) => status::run(client, output, &args).await,
        Command::DeadLetters(DeadLetters::List { days, limit }) => {
            dead_letters::list(&client, output, days, limit).await
        }
        Command::DeadLetters(DeadLetters::Show { partition, offset, index, days }) => {
            dead_letters::show(&client, output, (partition, offset, index), days).await
        }
        Command::Epoch(EpochCommand::Next { from, stopped }) => {
            epoch::next(&loaded.settings, output, from, stopped).await
        }
        Command::Lane(LaneCommand::Next { kind, subject, namespace, partition, total }) => {
            let namespace = namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
            let counter = CounterId::new(namespace, &kind, &subject)?;
            lane::next(&loaded.settings, output, Partition(partition), counter, total).await
        }
        Command::Load(args) => load::run(&client, output, args, stopper).await,
        Command::Prove(args) => prove::run(loaded.settings, &global, &args, stopper).await,
        Command::Config(command) => config::run(&command, output, &loaded),
    }
}

fn load_settings(global: &Global) -> anyhow::Result<Loaded<Settings>> {
    let mut flags = Vec::new();
    for setting in &global.settings {
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| anyhow::anyhow!("--set takes KEY=VALUE, not '{setting}'"))?;
        flags.push((key.to_owned(), value.to_owned()));
    }
    for (key, value) in [("data_dir", &global.data_dir), ("listen", &global.listen)] {
        flags.extend(value.as_ref().map(|value| (key.to_owned(), value.clone())));
    }
    // What clap takes from the environment is no setting.
    let own = ["TALLY_CONFIG", "TALLY_URL"];
    let variables = std::env::vars().filter(|(name, _)| !own.contains(&name.as_str())).collect();
    let sources = Sources { file: global.config.clone(), variables, flags };
    let loaded: Loaded<Settings> = tally_service::config::load(&sources)?;
    loaded.settings.check()?;
    Ok(loaded)
}
