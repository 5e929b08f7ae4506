//! Patches as YAML text. Enters: a JSON tree, with names and values from outside; leaves: block style that any YAML
//! reader takes back as the same tree. Must not know what the tree means.

use serde_json::{Number, Value};

/// Words that YAML 1.1 readers take for something else than text (YAML 1.1 type repository: bool, null, float).
const NOT_TEXT: [&str; 12] =
    ["true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf", "infinity"];

/// The text of a tree.
#[must_use]
pub fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

/// Writes a value whose first line starts where `text` ends, further lines at `indent`.
fn block(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (number, (key, value)) in map.iter().enumerate() {
                start_line(number, indent, text);
                scalar_text(key, text);
                text.push(':');
                below(value, indent, text);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (number, item) in items.iter().enumerate() {
                start_line(number, indent, text);
                text.push('-');
                match item {
                    Value::Object(map) if !map.is_empty() => {
                        text.push(' ');
                        block(item, indent + 2, text);
                    }
                    _ => below(item, indent, text),
                }
            }
        }
        scalar => {
            leaf(scalar, text);
            text.push('\n');
        }
    }
}

fn start_line(number: usize, indent: usize, text: &mut String) {
    if number > 0 {
        text.extend(std::iter::repeat_n(' ', indent));
    }
}

/// Writes a value after its key or dash.
fn below(value: &Value, indent: usize, text: &mut String) {
    let nested = match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if nested {
        text.push('\n');
        text.extend(std::iter::repeat_n(' ', indent + 2));
        block(value, indent + 2, text);
    } else {
        text.push(' ');
        block(value, indent, text);
    }
}

fn leaf(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(flag) => text.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => text.push_str(&number_text(number)),
        Value::String(string) => scalar_text(string, text),
        Value::Array(_) => text.push_str("[]"),
        Value::Object(_) => text.push_str("{}"),
    }
}

/// YAML 1.1 wants a point and a sign in a float's exponent form.
fn number_text(number: &Number) -> String {
    let plain = number.to_string();
    let Some((mantissa, exponent)) = plain.split_once(['e', 'E']) else { return plain };
    let point = if mantissa.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with(['-', '+']) { "" } else { "+" };
    format!("{mantissa}{point}e{sign}{exponent}")
}

/// Text, in quotes unless every reader takes it for text without them.
fn scalar_text(string: &str, text: &mut String) {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let plain = string.starts_with(|c: char| c.is_ascii_alphabetic())
        && string.chars().all(word)
        && string.len() <= 256
        && !NOT_TEXT.contains(&string.to_ascii_lowercase().as_str());
    if plain {
        text.push_str(string);
        return;
    }
    text.push('"');
    for c in string.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            ' '..='~' => text.push(c),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            _ if u32::from(c) > 0xffff => text.push_str(&format!("\\U{:08x}", u32::from(c))),
            _ => text.push_str(&format!("\\u{:04x}", u32::from(c))),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn looks_as_people_write_it() {
        let patch = json!({"spec": {"endpointSelector": {"matchLabels": {"app": "ml"}}, "egress": [
            {"toEndpoints": [{}], "toPorts": [{"ports": [{"port": "53", "protocol": "UDP"}]}]}], "flag": false, "gone": null, "none": []}});
        let expected = "spec:\n  egress:\n    - toEndpoints:\n        - {}\n      toPorts:\n        - ports:\n            - port: \"53\"\n              protocol: UDP\n  endpointSelector:\n    matchLabels:\n      app: ml\n  flag: false\n  gone: null\n  none: []\n";
        assert_eq!(to_yaml(&patch), expected);
    }

    #[test]
    fn hostile_text_stays_text() {
        for text in [
            "yes",
            "NO",
            "~",
            "",
            "1",
            "0x1f",
            "1e3",
            ".inf",
            "a: b",
            "- a",
            "# c",
            "a\nb: c",
            "é\u{85}\u{2028}\u{feff}😀",
            "'",
            "\"",
            "!!js",
            "<<",
            "=",
            "a #b",
            "2026-01-01",
            "NaN",
            "&a",
            "*a",
            "\u{7f}\u{0}",
        ] {
            let tree = json!({text: [text, {text: text}]});
            let back: Value = serde_saphyr::from_str(&to_yaml(&tree)).unwrap();
            assert_eq!(back, tree, "{}", to_yaml(&tree));
        }
    }

    fn tree() -> impl Strategy<Value = Value> {
        let text = prop_oneof!["\\PC{0,12}", "[a-z0-9:#@&*!|>%~ .\n\t'\"-]{0,10}", any::<String>()];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i64>().prop_map(Value::from),
            text.clone().prop_map(Value::String),
        ];
        leaf.prop_recursive(5, 40, 6, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
                proptest::collection::btree_map(text.clone(), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn readers_get_the_same_tree_back(tree in tree()) {
            let text = to_yaml(&tree);
            let back: Value = serde_saphyr::from_str(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
            prop_assert_eq!(back, tree, "{}", text);
        }
    }
}
