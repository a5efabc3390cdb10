//! `reader`: the same as `tally reader`.

fn main() -> std::process::ExitCode {
    tally::main_of_role(tally::Role::Reader)
}
