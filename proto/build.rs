//! Compiles `wire/tally.proto` without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=wire/tally.proto");
    let descriptors = protox::compile(["wire/tally.proto"], ["wire"])?;
    prost_build::Config::new().bytes(["."]).compile_fds(descriptors)?;
    Ok(())
}
