//! From file, environment and flags, in this order, to one configuration. Later ones overrule earlier ones, key by
//! key; what each value came from is remembered.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::keys::{KEYS, Key};
use super::prices::PriceKey;
use super::value::Value;
use super::{Config, ConfigError};
use crate::capture::shown;
use crate::harmless::{harmless, harmless_lines};

/// A longer file is no configuration.
const MAX_FILE: u64 = 1 << 20;
/// Names in the environment that are ours begin so.
const PREFIX: &str = "FIREDOOR_";

/// Where a value came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A line of a file.
    File(PathBuf, usize),
    /// A variable of the environment.
    Environment(String),
    /// The command line.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, line) => write!(f, "{}:{line}", shown(path)),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag => f.write_str("flag"),
        }
    }
}

/// A configuration, and where it came from.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Effective {
    /// The configuration.
    pub config: Config,
    /// By key: where its value came from; keys that are not there have their default.
    pub origins: BTreeMap<String, Origin>,
}

/// Where an agent's configuration comes from, so that it can be read again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Layers {
    /// A file.
    pub file: Option<PathBuf>,
    /// Keys and values from the command line.
    pub flags: Vec<(String, String)>,
}

impl Layers {
    /// Reads them, with this process' environment between file and flags.
    ///
    /// # Errors
    /// Which of them says what is not understood.
    pub fn read(&self) -> Result<Effective, ConfigError> {
        Effective::of(self.file.as_deref(), std::env::vars_os(), &self.flags)
    }
}

/// What a name means.
enum Meaning<'a> {
    Key(&'static Key),
    Price(&'a str, PriceKey),
}

struct Assignment {
    key: String,
    value: Value,
    origin: Origin,
}

impl Effective {
    /// Joins the layers: a file, variables of an environment, and flags as `section.key=value`.
    ///
    /// # Errors
    /// Which of them says what is not understood, and what might have been meant.
    pub fn of(
        file: Option<&Path>,
        environment: impl Iterator<Item = (OsString, OsString)>,
        flags: &[(String, String)],
    ) -> Result<Self, ConfigError> {
        let mut effective = Self::default();
        if let Some(path) = file {
            let wrong = |what: String| ConfigError::Wrong { path: path.to_owned(), what };
            let text = read(path)?;
            let assignments = of_file(path, &text).map_err(wrong)?;
            effective.take(assignments).map_err(|(assignment, what)| match assignment.origin {
                Origin::File(_, line) => wrong(format!("line {line}: {}: {what}", assignment.key)),
                _ => wrong(what),
            })?;
        }
        let assignments = of_environment(environment)?;
        effective.take(assignments).map_err(|(assignment, what)| match assignment.origin {
            Origin::Environment(name) => ConfigError::Environment { name, what },
            _ => ConfigError::Environment { name: assignment.key, what },
        })?;
        for (key, value) in flags {
            let given = harmless(&format!("{key}={value}"));
            let flag = |what| ConfigError::Flag { given: given.clone(), what };
            meaning(key).map_err(flag)?;
            let assignment =
                Assignment { key: key.clone(), value: Value::Untyped(value.clone()), origin: Origin::Flag };
            effective.take(vec![assignment]).map_err(|(_, what)| flag(what))?;
        }
        Ok(effective)
    }

    fn take(&mut self, mut assignments: Vec<Assignment>) -> Result<(), (Assignment, String)> {
        assignments.sort_by_key(|assignment| match meaning(&assignment.key) {
            Ok(Meaning::Price(_, key)) => Some(key),
            _ => None,
        });
        for assignment in assignments {
            let taken = match meaning(&assignment.key) {
                Ok(Meaning::Key(key)) => key.place.set(&mut self.config, &assignment.value),
                Ok(Meaning::Price(provider, key)) => {
                    key.set(&mut self.config.settings.prices, provider, &assignment.value)
                }
                Err(what) => Err(what),
            };
            if let Err(what) = taken {
                return Err((assignment, what));
            }
            self.origins.insert(assignment.key, assignment.origin);
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if size > MAX_FILE {
        let what = format!("larger than {MAX_FILE} bytes");
        return Err(ConfigError::Wrong { path: path.to_owned(), what });
    }
    std::fs::read_to_string(path).map_err(|why| ConfigError::Unreadable { path: path.to_owned(), why })
}

fn of_file(path: &Path, text: &str) -> Result<Vec<Assignment>, String> {
    let table = DeTable::parse(text).map_err(|error| harmless_lines(&error.to_string()))?;
    let line = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
    let mut assignments = Vec::new();
    let mut tables: Vec<(String, &DeTable<'_>)> = vec![(String::new(), table.get_ref())];
    while let Some((prefix, table)) = tables.pop() {
        for (name, value) in table {
            let key = format!("{prefix}{}", name.get_ref());
            let at = line(name.span().start);
            if let DeValue::Table(inner) = value.get_ref() {
                if !is_section(&key) {
                    return Err(format!("line {at}: {}", unknown(&key)));
                }
                tables.push((format!("{key}."), inner));
                continue;
            }
            meaning(&key).map_err(|what| format!("line {at}: {what}"))?;
            let value =
                Value::of_toml(value.get_ref()).map_err(|what| format!("line {at}: {key}: {what}"))?;
            assignments.push(Assignment { key, value, origin: Origin::File(path.to_owned(), at) });
        }
    }
    Ok(assignments)
}

fn is_section(key: &str) -> bool {
    let mut parts = key.split('.');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("prices"), _, None) => true,
        (Some(section), None, None) => KEYS.iter().any(|key| key.section == section),
        _ => false,
    }
}

fn of_environment(
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<Assignment>, ConfigError> {
    let mut ours: Vec<(String, String)> = environment
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with(PREFIX) && !is_service_link(name))
        .collect();
    ours.sort();
    let assignment = |(name, value): (String, String)| match key_of_variable(&name) {
        Ok(key) => Ok(Assignment { key, value: Value::Untyped(value), origin: Origin::Environment(name) }),
        Err(what) => Err(ConfigError::Environment { name: harmless(&name), what }),
    };
    ours.into_iter().map(assignment).collect()
}

/// Kubernetes puts the addresses of services into the environment of pods, under names made of the service's
/// (Kubernetes, "Environment variables" of services): those of one that is called `firedoor` are no settings.
fn is_service_link(name: &str) -> bool {
    if name.ends_with("_SERVICE_HOST") || name.ends_with("_PORT") || name.contains("_SERVICE_PORT") {
        return true;
    }
    let after_port = name.rsplit_once("_PORT_").map(|(_, rest)| rest);
    after_port.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The variable that sets a key: `diagnosis.quietSeconds` is set by `FIREDOOR_DIAGNOSIS_QUIET_SECONDS`.
pub(super) fn variable(key: &str) -> String {
    let mut name = PREFIX.to_owned();
    for letter in key.chars() {
        match letter {
            '.' | '-' => name.push('_'),
            letter if letter.is_ascii_uppercase() => {
                name.push('_');
                name.push(letter);
            }
            letter => name.push(letter.to_ascii_uppercase()),
        }
    }
    name
}

fn key_of_variable(name: &str) -> Result<String, String> {
    let known = KEYS.iter().map(|key| format!("{}.{}", key.section, key.name));
    if let Some(key) = known.clone().find(|key| variable(key) == name) {
        return Ok(key);
    }
    let of_prices = name.strip_prefix("FIREDOOR_PRICES_").and_then(|rest| {
        PriceKey::ALL.iter().find_map(|key| {
            let provider =
                rest.strip_suffix(variable(key.name()).strip_prefix(PREFIX)?)?.strip_suffix('_')?;
            (!provider.is_empty()).then(|| format!("prices.{}.{}", provider.to_lowercase(), key.name()))
        })
    });
    let nearest = || nearest(name, known.map(|key| variable(&key)));
    of_prices.ok_or_else(|| match nearest() {
        Some(near) => format!("there is no such setting; did you mean {near}?"),
        None => "there is no such setting; `firedoor config` lists all".to_owned(),
    })
}

fn meaning(key: &str) -> Result<Meaning<'_>, String> {
    let (section, name) = key.split_once('.').unwrap_or(("", key));
    if section == "prices" {
        let (provider, name) = name.split_once('.').ok_or_else(|| unknown(key))?;
        let known = PriceKey::ALL.into_iter().find(|key| key.name() == name);
        return known.map(|known| Meaning::Price(provider, known)).ok_or_else(|| unknown(key));
    }
    let known = KEYS.iter().find(|key| key.section == section && key.name == name);
    known.map(Meaning::Key).ok_or_else(|| unknown(key))
}

fn unknown(key: &str) -> String {
    let mut known: Vec<String> = KEYS.iter().map(|key| format!("{}.{}", key.section, key.name)).collect();
    known.extend(KEYS.iter().map(|key| key.section.to_owned()));
    if let Some((provider, _)) = key.strip_prefix("prices.").and_then(|rest| rest.split_once('.')) {
        known.extend(PriceKey::ALL.iter().map(|key| format!("prices.{provider}.{}", key.name())));
    }
    let shown = harmless(key);
    match nearest(key, known.into_iter()) {
        Some(near) => format!("{shown}: there is no such key; did you mean {near}?"),
        None => format!("{shown}: there is no such key; `firedoor config` lists all"),
    }
}

/// The name that is most like this one, if any is like it at all.
fn nearest(name: &str, known: impl Iterator<Item = String>) -> Option<String> {
    let name: String = name.chars().take(128).collect::<String>().to_lowercase();
    let alike = |known: &String| strsim::normalized_damerau_levenshtein(&name, &known.to_lowercase());
    let best = known.max_by(|a, b| alike(a).total_cmp(&alike(b)))?;
    (alike(&best) > 0.6).then_some(best)
}
