//! Text from outside on its way to a person. Enters: any text; leaves: text without characters that control a terminal,
//! forge a line, or turn the direction of writing. Must not know what the text says.

/// Whether a character may do more than be seen: control characters, and those that separate lines or turn the
/// direction of writing (Unicode's bidirectional formatting).
#[must_use]
pub fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with harmful characters written out.
#[must_use]
pub fn harmless(text: &str) -> String {
    if !text.contains(is_harmful) {
        return text.to_owned();
    }
    let shown = |c: char| if is_harmful(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(shown).collect()
}

/// The same for text of several lines, which stay lines.
#[must_use]
pub fn harmless_lines(text: &str) -> String {
    text.split('\n').map(harmless).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_acts_is_left() {
        assert_eq!(harmless("a\u{1b}[31m\u{9b}\u{202e}\nb"), "a\\u{1b}[31m\\u{9b}\\u{202e}\\nb");
        assert_eq!(harmless_lines("a\u{7}\nb"), "a\\u{7}\nb");
        assert_eq!(harmless("zone-a \u{e9}"), "zone-a \u{e9}");
    }
}
