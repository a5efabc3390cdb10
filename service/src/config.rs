//! Settings: defaults, then a TOML file, then `TALLY__A__B` variables, then flags. Nothing that
//! was meant as a setting is ignored in silence.

use std::collections::BTreeMap;
use std::path::PathBuf;

use config::{Config, File, FileFormat};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Where settings come from, beside the defaults.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// A TOML file.
    pub file: Option<PathBuf>,
    /// The process's environment.
    pub variables: Vec<(String, String)>,
    /// Flags, by key (`flush.interval_ms`).
    pub flags: Vec<(String, String)>,
}

/// Settings, and where each came from.
#[derive(Debug, Clone)]
pub struct Loaded<T> {
    /// The settings.
    pub settings: T,
    /// By key: the value in force, and its origin.
    pub origins: BTreeMap<String, (String, String)>,
}

/// Why settings are refused; each says what to do.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A variable that no setting takes.
    #[error("variable {variable} is no setting; did you mean {nearest}?")]
    UnknownVariable {
        /// As it stands in the environment.
        variable: String,
        /// The variable of the nearest setting.
        nearest: String,
    },
    /// The file, or a value in it or in a variable or flag.
    #[error("{0}")]
    Invalid(#[from] config::ConfigError),
}

const PREFIX: &str = "TALLY__";

/// Loads settings over the defaults of `T`.
pub fn load<T>(sources: &Sources) -> Result<Loaded<T>, ConfigError>
where
    T: Default + Serialize + DeserializeOwned,
{
    let defaults = flatten(&T::default());
    let mut origins: BTreeMap<String, (String, String)> = defaults
        .iter()
        .map(|(key, value)| (key.clone(), (value.clone(), "default".to_owned())))
        .collect();
    let mut builder = Config::builder();
    if let Some(path) = &sources.file {
        let file = Config::builder()
            .add_source(File::from(path.as_path()).format(FileFormat::Toml))
            .build()?;
        for (key, value) in flatten(&file.clone().try_deserialize::<serde_json::Value>()?) {
            origins.insert(key, (value, format!("file {}", path.display())));
        }
        builder = builder.add_source(file);
    }
    for (variable, value) in &sources.variables {
        let Some(key) = key_of(variable, &defaults)? else { continue };
        if value.is_empty() {
            continue;
        }
        builder = builder.set_override(&key, value.as_str())?;
        origins.insert(key, (value.clone(), format!("variable {variable}")));
    }
    for (key, value) in &sources.flags {
        builder = builder.set_override(key, value.as_str())?;
        origins.insert(key.clone(), (value.clone(), "flag".to_owned()));
    }
    let settings = builder.build()?.try_deserialize()?;
    for (key, (value, _)) in &mut origins {
        if ["password", "secret"].iter().any(|word| key.contains(word)) && !value.is_empty() {
            "***".clone_into(value);
        }
    }
    Ok(Loaded { settings, origins })
}

/// The variable of a key: `kafka.brokers` is `TALLY__KAFKA__BROKERS`.
pub fn variable_of(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_uppercase())
}

/// The key that a variable sets; `None` for a variable that is not ours.
fn key_of(variable: &str, known: &BTreeMap<String, String>) -> Result<Option<String>, ConfigError> {
    let Some(rest) = variable.strip_prefix("TALLY_") else { return Ok(None) };
    let key = rest.strip_prefix('_').map(|rest| rest.to_lowercase().replace("__", "."));
    if let Some(key) = key.filter(|key| known.contains_key(key)) {
        return Ok(Some(key));
    }
    let wanted = squash(rest);
    let nearest = known
        .keys()
        .map(|key| (distance(&wanted, &squash(key)), key))
        .min()
        .map(|(distance, key)| (distance, variable_of(key)));
    match nearest {
        // With one underscore it may be another's variable (a cluster's service link, say), unless
        // it reads like a setting of ours.
        Some((distance, _)) if !variable.starts_with(PREFIX) && distance > 1 => Ok(None),
        Some((_, nearest)) => {
            Err(ConfigError::UnknownVariable { variable: variable.to_owned(), nearest })
        }
        None => Ok(None),
    }
}

/// Letters and digits only, lower case.
fn squash(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// How many letters must be added, removed or changed to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let change = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = change.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Dotted keys and their values as text; an absent value is empty.
fn flatten(settings: &impl Serialize) -> BTreeMap<String, String> {
    fn walk(prefix: &str, value: &serde_json::Value, flat: &mut BTreeMap<String, String>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    let key =
                        if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                    walk(&key, value, flat);
                }
            }
            serde_json::Value::Null => drop(flat.insert(prefix.to_owned(), String::new())),
            serde_json::Value::String(text) => drop(flat.insert(prefix.to_owned(), text.clone())),
            other => drop(flat.insert(prefix.to_owned(), other.to_string())),
        }
    }
    let mut flat = BTreeMap::new();
    if let Ok(value) = serde_json::to_value(settings) {
        walk("", &value, &mut flat);
    }
    flat
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Kafka {
        brokers: Option<String>,
        password: Option<String>,
    }

    #[derive(Debug, Default, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Sample {
        partitions: Option<u32>,
        kafka: Kafka,
    }

    fn with(variable: &str, value: &str) -> Result<Loaded<Sample>, ConfigError> {
        let variables = vec![(variable.to_owned(), value.to_owned())];
        load(&Sources { variables, ..Sources::default() })
    }

    #[test]
    fn a_variable_with_two_underscores_sets_its_key() {
        let loaded = with("TALLY__KAFKA__BROKERS", "a:1,b:2").unwrap();
        assert_eq!(loaded.settings.kafka.brokers.as_deref(), Some("a:1,b:2"));
        assert_eq!(loaded.origins["kafka.brokers"].1, "variable TALLY__KAFKA__BROKERS");
        assert_eq!(with("TALLY__PARTITIONS", "16").unwrap().settings.partitions, Some(16));
        assert!(with("TALLY__PARTITIONS", "many").is_err());
    }

    #[test]
    fn a_near_miss_is_refused_with_the_nearest_key() {
        for variable in ["TALLY_KAFKA__BROKERS", "TALLY_KAFKA_BROKERS", "TALLY__KAFKA__BROKER"] {
            let error = with(variable, "a:1").unwrap_err().to_string();
            assert!(error.ends_with("did you mean TALLY__KAFKA__BROKERS?"), "{error}");
        }
    }

    #[test]
    fn variables_of_others_are_left_alone() {
        assert!(with("TALLY_SERVICE_HOST", "10.0.0.1").is_ok());
        assert!(with("TALLY_PORT_8080_TCP", "tcp://10.0.0.1:8080").is_ok());
        assert!(with("PATH", "/bin").is_ok());
    }

    #[test]
    fn secrets_are_masked() {
        let loaded = with("TALLY__KAFKA__PASSWORD", "hunter2").unwrap();
        assert_eq!(loaded.origins["kafka.password"].0, "***");
    }
}
