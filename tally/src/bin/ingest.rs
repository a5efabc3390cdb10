//! `ingest`: the same as `tally ingest`.

fn main() -> std::process::ExitCode {
    tally::main_of_role(tally::Role::Ingest)
}
