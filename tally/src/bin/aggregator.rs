//! `aggregator`: the same as `tally aggregator`.

fn main() -> std::process::ExitCode {
    tally::main_of_role(tally::Role::Aggregator)
}
