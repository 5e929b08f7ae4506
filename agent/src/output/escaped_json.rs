//! JSON for programs that a person may look at as well. Enters: a value; leaves: pretty-printed JSON in which characters
//! that steer a terminal or turn the direction of writing stand as escapes. To a parser it is the same document.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

use crate::harmless::is_harmful;

/// Writes the value and a final newline: the same value is the same bytes.
///
/// # Errors
/// When writing fails.
pub(super) fn write(value: &impl Serialize, mut to: impl Write) -> io::Result<()> {
    value.serialize(&mut Serializer::with_formatter(&mut to, Escaping::default()))?;
    to.write_all(b"\n")?;
    to.flush()
}

/// The pretty form; JSON itself only demands escapes for characters below U+0020.
#[derive(Default)]
struct Escaping(PrettyFormatter<'static>);

impl Formatter for Escaping {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, text: &str) -> io::Result<()> {
        let mut units = [0; 2];
        for part in text.split_inclusive(is_harmful) {
            let last = part.chars().next_back().filter(|c| is_harmful(*c));
            let plain = part.len() - last.map_or(0, char::len_utf8);
            CompactFormatter.write_string_fragment(writer, part.get(..plain).unwrap_or_default())?;
            for unit in last.map_or(&[][..], |last| last.encode_utf16(&mut units)) {
                write!(writer, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_acts_is_escaped_and_means_the_same() {
        let odd = "a\u{1b}[31m \u{9b}31m \u{7f} \u{202e}evil\u{2066}\u{61c} \u{e9} \u{1f600} \" \\ \n";
        let value = json!({ odd: [odd, {}, [], 1, null] });
        let mut bytes = Vec::new();
        write(&value, &mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(!text.contains(|c: char| c != '\n' && is_harmful(c)), "{text:?}");
        assert!(text.contains("\\u009b31m \\u007f \\u202eevil\\u2066\\u061c \u{e9} \u{1f600}"), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn else_it_is_the_pretty_form() {
        let value = json!({"a": [1, {"b": "c"}], "d": {}, "e": []});
        let mut bytes = Vec::new();
        write(&value, &mut bytes).unwrap();
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        assert_eq!(String::from_utf8(bytes).unwrap(), format!("{pretty}\n"));
    }
}
