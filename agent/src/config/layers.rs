//! From file, environment and flags, in this order, to one configuration. Later ones overrule earlier ones, key by
//! key; what each value came from is remembered.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::names::{
    Meaning, PREFIX, is_section, is_service_link, key_of_variable, meaning, unknown, unknown_variable,
};
use super::value::Value;
use super::{Config, ConfigError};
use crate::capture::shown;
use crate::harmless::{harmless, harmless_lines};

/// A longer file is no configuration.
const MAX_FILE: u64 = 1 << 20;
/// So much that is wrong is told of one file; more of it is counted.
const TOLD: usize = 20;

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

impl Origin {
    /// The variable's name, or what else it is.
    fn name(&self) -> String {
        match self {
            Self::Environment(name) => harmless(name),
            other => other.to_string(),
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
    /// What the command line sets.
    pub flags: Vec<Given>,
}

/// A setting on the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Given {
    /// Its key, as `section.name`.
    pub key: String,
    /// Its value.
    pub value: String,
    /// The flag that was written, with what it was given.
    pub written: String,
}

impl Layers {
    /// Reads them, with this process' environment between file and flags.
    ///
    /// # Errors
    /// What in them is not understood.
    pub fn read(&self) -> Result<Effective, ConfigError> {
        Effective::of(self.file.as_deref(), std::env::vars_os(), &self.flags)
    }
}

struct Assignment {
    key: String,
    value: Value,
    origin: Origin,
}

/// What was not taken, and why.
struct Refused {
    key: String,
    origin: Origin,
    /// `None`: there is no such key.
    what: Option<String>,
}

impl Refused {
    fn what(&self) -> String {
        self.what.clone().unwrap_or_else(|| unknown(&self.key))
    }

    fn line(&self) -> usize {
        if let Origin::File(_, line) = self.origin { line } else { 0 }
    }
}

impl Effective {
    /// Joins the layers: a file, variables of an environment, and flags.
    ///
    /// # Errors
    /// All that is not understood, and what might have been meant.
    pub fn of(
        file: Option<&Path>,
        environment: impl Iterator<Item = (OsString, OsString)>,
        flags: &[Given],
    ) -> Result<Self, ConfigError> {
        let mut effective = Self::default();
        let mut wrong = Vec::new();
        if let Some(path) = file {
            wrong.extend(effective.take_file(path)?);
        }
        let (assignments, refused) = of_environment(environment);
        wrong.extend(refused);
        wrong.extend(
            effective.take(assignments).iter().map(|refused| ConfigError::Environment {
                name: refused.origin.name(),
                what: refused.what(),
            }),
        );
        for Given { key, value, written } in flags {
            let value = Value::Untyped(value.clone());
            let assignment = Assignment { key: key.clone(), value, origin: Origin::Flag };
            let refused = effective.take(vec![assignment]);
            let flag =
                |refused: &Refused| ConfigError::Flag { given: harmless(written), what: refused.what() };
            wrong.extend(refused.iter().map(flag));
        }
        wrong.extend(effective.alone());
        match wrong.len() {
            0 => Ok(effective),
            1 => Err(wrong.remove(0)),
            _ => Err(ConfigError::Several(wrong)),
        }
    }

    fn alone(&self) -> Option<ConfigError> {
        let (certificate, key) = ("hubble.tlsCert", "hubble.tlsKey");
        let (set, missing) = match (&self.config.hubble.tls_cert, &self.config.hubble.tls_key) {
            (Some(_), None) => (certificate, key),
            (None, Some(_)) => (key, certificate),
            _ => return None,
        };
        let origin = self.origins.get(set).cloned().unwrap_or(Origin::Default);
        Some(ConfigError::Alone { set, origin, missing })
    }

    /// Takes a file; what is wrong with its keys comes back, in the order of its lines.
    fn take_file(&mut self, path: &Path) -> Result<Vec<ConfigError>, ConfigError> {
        let wrong = |what: String| ConfigError::Wrong { path: path.to_owned(), what };
        let text = read(path)?;
        let (assignments, mut refused) = of_file(path, &text).map_err(wrong)?;
        refused.extend(self.take(assignments));
        refused.sort_by_key(Refused::line);
        let told = refused.iter().take(TOLD).map(|refused| {
            wrong(format!("line {}: {}: {}", refused.line(), harmless(&refused.key), refused.what()))
        });
        let more = refused.len().saturating_sub(TOLD);
        let counted = (more > 0).then(|| wrong(format!("and {more} keys more")));
        Ok(told.chain(counted).collect())
    }

    fn take(&mut self, mut assignments: Vec<Assignment>) -> Vec<Refused> {
        assignments.sort_by_key(|assignment| match meaning(&assignment.key) {
            Some(Meaning::Price(_, key)) => Some(key),
            _ => None,
        });
        let mut refused = Vec::new();
        for Assignment { key, value, origin } in assignments {
            let taken = match meaning(&key) {
                Some(Meaning::Key(known)) => known.place.set(&mut self.config, &value).map_err(Some),
                Some(Meaning::Price(provider, known)) => {
                    known.set(&mut self.config.settings.prices, provider, &value).map_err(Some)
                }
                None if is_section(&key) => {
                    Err(Some("is a section: set one of its keys, which `firedoor config` lists".to_owned()))
                }
                None => Err(None),
            };
            match taken {
                Ok(()) => drop(self.origins.insert(key, origin)),
                Err(what) => refused.push(Refused { key, origin, what }),
            }
        }
        refused
    }
}

/// Reads a file of bounded size. A pipe is never opened: whoever opens one waits for who writes into it.
fn read(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |why| ConfigError::Unreadable { path: path.to_owned(), why };
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unreadable(io::Error::other(
            "it is no regular file: give a file, not a directory or pipe",
        )));
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > MAX_FILE {
        let what = format!("larger than {MAX_FILE} bytes");
        return Err(ConfigError::Wrong { path: path.to_owned(), what });
    }
    Ok(text)
}

/// What a file sets, and what in it cannot be.
fn of_file(path: &Path, text: &str) -> Result<(Vec<Assignment>, Vec<Refused>), String> {
    let table = DeTable::parse(text).map_err(|error| harmless_lines(&error.to_string()))?;
    let lines: Vec<usize> = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at).collect();
    let line = |at: usize| lines.partition_point(|end| *end < at) + 1;
    let (mut assignments, mut refused) = (Vec::new(), Vec::new());
    let mut tables: Vec<(String, &DeTable<'_>)> = vec![(String::new(), table.get_ref())];
    while let Some((prefix, table)) = tables.pop() {
        for (name, value) in table {
            let key = format!("{prefix}{}", name.get_ref());
            let origin = Origin::File(path.to_owned(), line(name.span().start));
            let is_table = matches!(value.get_ref(), DeValue::Table(_));
            let taken = match value.get_ref() {
                DeValue::Table(inner) if is_section(&key) => {
                    tables.push((format!("{key}."), inner));
                    continue;
                }
                _ if is_table && meaning(&key).is_some() => {
                    Err(Some("is one setting, and no table".to_owned()))
                }
                _ if is_table => Err(None),
                _ if is_section(&key) => Err(Some(format!("must be a table: [{}]", harmless(&key)))),
                // Who asks for a value of a key that does not exist hears of the key.
                _ if meaning(&key).is_none() => Err(None),
                value => Value::of_toml(value).map_err(Some),
            };
            match taken {
                Ok(value) => assignments.push(Assignment { key, value, origin }),
                Err(what) => refused.push(Refused { key, origin, what }),
            }
        }
    }
    Ok((assignments, refused))
}

fn of_environment(
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> (Vec<Assignment>, Vec<ConfigError>) {
    let mut ours: Vec<(String, String)> = environment
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with(PREFIX) && !is_service_link(name))
        .collect();
    ours.sort();
    let (mut assignments, mut refused) = (Vec::new(), Vec::new());
    for (name, value) in ours {
        match key_of_variable(&name) {
            Some(key) => {
                let origin = Origin::Environment(name);
                assignments.push(Assignment { key, value: Value::Untyped(value), origin });
            }
            None => refused
                .push(ConfigError::Environment { what: unknown_variable(&name), name: harmless(&name) }),
        }
    }
    (assignments, refused)
}
