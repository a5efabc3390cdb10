//! `tally`: every role and command in one binary.

fn main() -> std::process::ExitCode {
    tally::main()
}
