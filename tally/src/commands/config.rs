//! `tally config print | check`.

use serde_json::json;
use tally_service::config::Loaded;

use crate::cli::{ConfigCommand, Output};
use crate::output;
use crate::settings::Settings;

pub(crate) fn run(
    command: &ConfigCommand,
    output: Output,
    loaded: &Loaded<Settings>,
) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Check => {
            println!("the settings are right");
            Ok(()) // what is wrong with them was said when they were loaded
        }
        ConfigCommand::Print => {
            let setting = |(key, (value, origin)): (&String, &(String, String))| json!({ "key": key, "value": value, "origin": origin });
            let settings: Vec<_> = loaded.origins.iter().map(setting).collect();
            output::print(output, &settings, |_| {
                let row = |(key, (value, origin)): (&String, &(String, String))| {
                    vec![key.clone(), value.clone(), origin.clone()]
                };
                let rows: Vec<_> = loaded.origins.iter().map(row).collect();
                output::table(&["KEY", "VALUE", "ORIGIN"], &rows)
            })
        }
    }
}
