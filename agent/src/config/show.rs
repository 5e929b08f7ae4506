//! The effective configuration as a file that would give it again, with the origin and meaning of each value.

use std::collections::BTreeSet;
use std::io::{self, Write};

use firedoor_core::prices::Prices;

use super::keys::KEYS;
use super::names::{nearest_provider, variable};
use super::prices::PriceKey;
use super::value::Value;
use super::{Config, Effective, Origin};
use crate::harmless::harmless;

struct Line {
    section: String,
    name: &'static str,
    value: Option<Value>,
    origin: Origin,
    about: &'static str,
}

impl Config {
    /// The keys, without prices, whose values are others there.
    #[must_use]
    pub fn differing_keys(&self, other: &Self) -> Vec<String> {
        let (mut ours, mut theirs) = (self.clone(), other.clone());
        let differing = KEYS.iter().filter(|key| key.place.get(&mut ours) != key.place.get(&mut theirs));
        differing.map(|key| format!("{}.{}", key.section, key.name)).collect()
    }
}

impl Effective {
    fn lines(&self) -> Vec<Line> {
        let mut config = self.config.clone();
        let origin = |section: &str, name: &str| {
            self.origins.get(&format!("{section}.{name}")).cloned().unwrap_or(Origin::Default)
        };
        let mut lines: Vec<Line> = KEYS
            .iter()
            .map(|key| Line {
                section: key.section.to_owned(),
                name: key.name,
                value: key.place.get(&mut config),
                origin: origin(key.section, key.name),
                about: key.about,
            })
            .collect();
        for (provider, tariff) in &self.config.settings.prices.0 {
            let section = format!("prices.{provider}");
            lines.extend(PriceKey::ALL.into_iter().map(|key| Line {
                name: key.name(),
                value: key.get(tariff),
                origin: origin(&section, key.name()),
                about: key.about(),
                section: section.clone(),
            }));
        }
        lines
    }

    /// Writes it as TOML. A key that has no value stands in a comment.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        let lines = self.lines();
        let sections: BTreeSet<&str> = lines.iter().map(|line| line.section.as_str()).collect();
        writeln!(to, "# The effective configuration: file, then environment, then flags.")?;
        for section in sections {
            let provider = section.strip_prefix("prices.");
            let title =
                provider.map_or_else(|| section.to_owned(), |name| format!("prices.{}", quoted(name)));
            writeln!(to, "\n[{title}]")?;
            if let Some(note) = provider.and_then(unpriced) {
                writeln!(to, "# {note}")?;
            }
            for line in lines.iter().filter(|line| line.section == section) {
                let value = line.value.as_ref().map(Value::to_string);
                let (mark, value) = value.map_or(("# ", "\"\"".to_owned()), |value| ("", value));
                let unset = if mark.is_empty() { "" } else { ", not set" };
                let Line { name, about, origin, .. } = line;
                writeln!(to, "{mark}{name} = {value}  # {origin}{unset}: {about}")?;
            }
        }
        Ok(())
    }

    /// Writes it as JSON: by key its value (null: not set), origin, variable of the environment, and meaning.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write_json(&self, mut to: impl Write) -> io::Result<()> {
        let lines = self.lines();
        let entries = lines.iter().map(|line| {
            let key = format!("{}.{}", line.section, line.name);
            let value = match &line.value {
                None => serde_json::Value::Null,
                Some(Value::Flag(flag)) => (*flag).into(),
                Some(Value::Whole(number)) => (*number).into(),
                Some(Value::Number(number)) => (*number).into(),
                Some(Value::Text(text) | Value::Untyped(text)) => text.as_str().into(),
                Some(Value::Texts(texts)) => texts.clone().into(),
            };
            let entry = serde_json::json!({
                "value": value,
                "origin": line.origin.to_string(),
                "environment": variable(&key),
                "about": line.about,
            });
            (key, entry)
        });
        let all: serde_json::Map<String, serde_json::Value> = entries.collect();
        serde_json::to_writer_pretty(&mut to, &all)?;
        writeln!(to)
    }
}

/// What to say to a provider that the table of prices does not have: it may be one of the user's own, or a typing error.
fn unpriced(provider: &str) -> Option<String> {
    let table = Prices::default().0;
    if table.contains_key(provider) {
        return None;
    }
    let near = nearest_provider(provider, table.keys().map(String::as_str));
    let meant = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
    let shown = harmless(provider);
    Some(format!("not in the built-in table: for nodes whose spec.providerID begins with {shown}://{meant}"))
}

/// A name as a TOML key.
fn quoted(name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if bare { name.to_owned() } else { toml::Value::String(name.to_owned()).to_string() }
}
