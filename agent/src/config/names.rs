//! What the names of settings mean, in files, flags and the environment. Enters: a name; leaves: the setting, or what
//! was probably meant. Must not know values.

use super::keys::{KEYS, Key};
use super::prices::PriceKey;

/// Names in the environment that are ours begin so.
pub(super) const PREFIX: &str = "FIREDOOR_";
/// Names that are less alike are not suggested.
const ALIKE: f64 = 0.6;

/// What a name means.
pub(super) enum Meaning<'a> {
    Key(&'static Key),
    Price(&'a str, PriceKey),
}

pub(super) fn meaning(key: &str) -> Option<Meaning<'_>> {
    let (section, name) = key.split_once('.')?;
    if section == "prices" {
        let (provider, name) = name.split_once('.')?;
        let known = PriceKey::ALL.into_iter().find(|key| key.name() == name)?;
        return (!provider.is_empty()).then_some(Meaning::Price(provider, known));
    }
    KEYS.iter().find(|key| key.section == section && key.name == name).map(Meaning::Key)
}

pub(super) fn is_section(key: &str) -> bool {
    match key.split_once('.') {
        None => key == "prices" || KEYS.iter().any(|known| known.section == key),
        Some((section, provider)) => section == "prices" && !provider.is_empty() && !provider.contains('.'),
    }
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

/// The key that a variable sets; `None`: none.
pub(super) fn key_of_variable(name: &str) -> Option<String> {
    let known = KEYS.iter().map(|key| format!("{}.{}", key.section, key.name));
    if let Some(key) = known.into_iter().find(|key| variable(key) == name) {
        return Some(key);
    }
    let rest = name.strip_prefix("FIREDOOR_PRICES_")?;
    PriceKey::ALL.iter().find_map(|key| {
        let provider = rest.strip_suffix(variable(key.name()).strip_prefix(PREFIX)?)?.strip_suffix('_')?;
        (!provider.is_empty()).then(|| format!("prices.{}.{}", provider.to_lowercase(), key.name()))
    })
}

/// Kubernetes puts the addresses of services into the environment of pods, under names made of the service's
/// (Kubernetes, "Environment variables" of services): those of one that is called `firedoor` are no settings.
pub(super) fn is_service_link(name: &str) -> bool {
    if name.ends_with("_SERVICE_HOST") || name.ends_with("_PORT") || name.contains("_SERVICE_PORT") {
        return true;
    }
    let after_port = name.rsplit_once("_PORT_").map(|(_, rest)| rest);
    after_port.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// What to say to a key that does not exist.
pub(super) fn unknown(key: &str) -> String {
    let whole = |section: &str, name: &str| (format!("{section}.{name}"), name.to_owned());
    let mut known: Vec<(String, String)> = KEYS.iter().map(|key| whole(key.section, key.name)).collect();
    known.extend(KEYS.iter().map(|key| (key.section.to_owned(), key.section.to_owned())));
    if let Some((provider, _)) = key.strip_prefix("prices.").and_then(|rest| rest.split_once('.')) {
        let section = format!("prices.{provider}");
        known.extend(PriceKey::ALL.iter().map(|key| whole(&section, key.name())));
    }
    let own = key.rsplit('.').next().unwrap_or(key);
    suggested("key", nearest(key, own, known))
}

/// What to say to a variable that sets nothing.
pub(super) fn unknown_variable(name: &str) -> String {
    let known = KEYS.iter().map(|key| {
        let of_key = variable(key.name);
        let own = of_key.strip_prefix(PREFIX).unwrap_or(&of_key).to_owned();
        (variable(&format!("{}.{}", key.section, key.name)), own)
    });
    suggested("setting", nearest(name, name.strip_prefix(PREFIX).unwrap_or(name), known))
}

fn suggested(what: &str, nearest: Option<String>) -> String {
    match nearest {
        Some(near) => format!("there is no such {what}; did you mean {near}?"),
        None => format!("there is no such {what}; `firedoor config` lists all"),
    }
}

/// Which of these is most like a provider of prices.
pub(super) fn nearest_provider<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    nearest(name, "", known.map(|known| (known.to_owned(), String::new())))
}

/// The name that is most like this one, if any is like it at all. Both are compared whole, and without what they stand
/// in: a section may have been left out, or be the wrong one.
fn nearest(name: &str, own: &str, known: impl IntoIterator<Item = (String, String)>) -> Option<String> {
    let lower = |text: &str| text.chars().take(128).collect::<String>().to_lowercase();
    let (name, own) = (lower(name), lower(own));
    let alike = |a: &str, b: &str| strsim::normalized_damerau_levenshtein(a, &b.to_lowercase());
    let of_both = |known: &(String, String)| {
        let of_own = if own.is_empty() { 0.0 } else { alike(&own, &known.1) };
        // Whole names that are equally alike go first.
        alike(&name, &known.0).max(of_own * 0.95)
    };
    let best =
        known.into_iter().map(|known| (of_both(&known), known.0)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > ALIKE).then_some(best.1)
}
