//! One configured value, whatever wrote it: TOML has types, the environment and flags have text. Enters: either;
//! leaves: a typed value, or what is wrong with it.

use std::fmt;

use toml::de::{DeTable, DeValue};

/// A value.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
    /// Several texts.
    Texts(Vec<String>),
    /// Text from outside of TOML: it takes the type that is wanted.
    Untyped(String),
}

impl Value {
    /// A value of a TOML file.
    pub(super) fn of_toml(value: &DeValue<'_>) -> Result<Self, String> {
        match value {
            DeValue::String(text) => Ok(Self::Text(text.clone().into_owned())),
            DeValue::Boolean(flag) => Ok(Self::Flag(*flag)),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map(Self::Whole)
                .map_err(|_| "this number is too large".to_owned()),
            DeValue::Float(number) => {
                number.as_str().parse().map(Self::Number).map_err(|_| "this is no number".to_owned())
            }
            DeValue::Array(items) => {
                let texts = items.iter().map(|item| match item.get_ref() {
                    DeValue::String(text) => Ok(text.clone().into_owned()),
                    other => Err(format!("a list of texts, not of {}s", other.type_str())),
                });
                texts.collect::<Result<_, _>>().map(Self::Texts)
            }
            DeValue::Datetime(_) | DeValue::Table(_) => Err(format!("not a {}", value.type_str())),
        }
    }

    pub(super) fn whole(&self, least: u64, most: u64) -> Result<u64, String> {
        let number = match self {
            Self::Whole(number) => u64::try_from(*number).ok(),
            Self::Untyped(text) => text.trim().parse().ok(),
            _ => None,
        };
        let wanted = || match (least, most) {
            (0, u64::MAX) => "must be a whole number from 0 on".to_owned(),
            (_, u64::MAX) => format!("must be a whole number from {least} on"),
            _ => format!("must be a whole number from {least} to {most}"),
        };
        number.filter(|number| (least..=most).contains(number)).ok_or_else(wanted)
    }

    #[expect(clippy::cast_precision_loss, reason = "a threshold beyond 2^53 means the same either way")]
    pub(super) fn number(&self) -> Result<f64, String> {
        let number = match self {
            Self::Whole(number) => Some(*number as f64),
            Self::Number(number) => Some(*number),
            Self::Untyped(text) => text.trim().parse().ok(),
            _ => None,
        };
        number
            .filter(|number| number.is_finite() && *number >= 0.0)
            .ok_or_else(|| "must be a number from 0 on".to_owned())
    }

    pub(super) fn flag(&self) -> Result<bool, String> {
        match self {
            Self::Flag(flag) => Ok(*flag),
            Self::Untyped(text) => text.trim().parse().map_err(|_| "must be true or false".to_owned()),
            _ => Err("must be true or false".to_owned()),
        }
    }

    pub(super) fn text(&self) -> Result<&str, String> {
        match self {
            Self::Text(text) | Self::Untyped(text) => Ok(text),
            _ => Err("must be text".to_owned()),
        }
    }

    /// Several texts; from outside of TOML they stand between commas, or as TOML writes a list.
    pub(super) fn texts(&self) -> Result<Vec<String>, String> {
        match self {
            Self::Texts(texts) => Ok(texts.clone()),
            Self::Text(text) => Ok(vec![text.clone()]),
            Self::Untyped(text) => listed(text.trim()),
            _ => Err("must be a list of texts".to_owned()),
        }
    }
}

fn listed(text: &str) -> Result<Vec<String>, String> {
    let neither = || "must be a list, as app,role or as [\"app\", \"role\"]".to_owned();
    if text.starts_with('[') {
        let document = format!("list = {text}");
        let table = DeTable::parse(&document).map_err(|_| neither())?;
        let mut entries = table.get_ref().iter();
        return match (entries.next(), entries.next()) {
            (Some((_, value)), None) => Value::of_toml(value.get_ref()).and_then(|value| value.texts()),
            _ => Err(neither()),
        };
    }
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    // Half a list of TOML's, or a quoted text: taken as they are they would be names that nothing has.
    let marks = ['[', ']', '"', '\''];
    if parts.iter().any(|part| part.starts_with(marks) || part.ends_with(marks)) {
        return Err(neither());
    }
    Ok(parts.into_iter().map(str::to_owned).collect())
}

/// As TOML writes it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Whole(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{}", toml::Value::Float(*number)),
            Self::Text(text) | Self::Untyped(text) => write!(f, "{}", toml::Value::String(text.clone())),
            Self::Texts(texts) => write!(f, "{}", toml::Value::from(texts.clone())),
        }
    }
}
