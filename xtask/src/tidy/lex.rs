//! Reads Rust just well enough. Enters: source text; leaves: its identifiers, punctuation and paths, without
//! comments and literals. Imports in braces come out as full paths, so that grouping hides nothing.

/// A piece of code that is neither comment nor literal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'a> {
    Word(&'a str),
    /// `::`
    Joint,
    Mark(char),
}

/// A token and the line it is on, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Placed<'a> {
    pub(super) line: usize,
    pub(super) token: Token<'a>,
}

/// Words that may stand before a path that begins with `::`.
const NOT_IN_A_PATH: [&str; 12] =
    ["as", "const", "dyn", "else", "for", "if", "impl", "in", "match", "mut", "return", "use"];

/// A path such as `std::fs::read`; a glob ends in `*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CodePath<'a> {
    pub(super) line: usize,
    pub(super) segments: Vec<&'a str>,
}

/// The tokens of `source`.
pub(super) fn tokens(source: &str) -> Vec<Placed<'_>> {
    let mut found = Vec::new();
    let mut line = 1;
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest).unwrap_or_else(|| {
            let (token, length) = token(rest, first);
            found.extend(token.map(|token| Placed { line, token }));
            length
        });
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    found
}

fn token(rest: &str, first: char) -> (Option<Token<'_>>, usize) {
    if rest.starts_with("::") {
        return (Some(Token::Joint), 2);
    }
    if first.is_alphabetic() || first == '_' {
        let raw = if rest.starts_with("r#") { 2 } else { 0 };
        let length = raw + word_length(&rest[raw..]);
        return (Some(Token::Word(&rest[raw..length])), length);
    }
    if first.is_ascii_digit() {
        return (None, word_length(rest));
    }
    let mark = (!first.is_whitespace()).then_some(Token::Mark(first));
    (mark, first.len_utf8())
}

fn word_length(rest: &str) -> usize {
    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
}

/// The length of the comment or literal that `rest` begins with.
fn skipped(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment(rest));
    }
    let prefix = ["br", "cr", "b", "c", "r"].into_iter().find(|prefix| {
        rest.strip_prefix(prefix).is_some_and(|after| match after.as_bytes().first() {
            Some(b'"') => true,
            Some(b'#') => prefix.ends_with('r') && after.trim_start_matches('#').starts_with('"'),
            Some(b'\'') => *prefix == "b",
            _ => false,
        })
    });
    let start = prefix.map_or(0, str::len);
    let body = &rest[start..];
    if prefix.is_some_and(|prefix| prefix.ends_with('r')) {
        let hashes = body.len() - body.trim_start_matches('#').len();
        let end = format!("\"{}", "#".repeat(hashes));
        let text = hashes + 1;
        return Some(start + body[text..].find(&end).map_or(body.len(), |at| text + at + end.len()));
    }
    match body.as_bytes().first()? {
        b'"' => Some(start + quoted(body, '"')),
        b'\'' if is_char(body) => Some(start + quoted(body, '\'')),
        b'\'' => Some(1 + word_length(&body[1..])),
        _ => None,
    }
}

/// A lifetime has no closing quote right after one character.
fn is_char(body: &str) -> bool {
    let mut chars = body.chars().skip(1);
    match chars.next() {
        Some('\\') => true,
        Some(_) => chars.next() == Some('\''),
        None => false,
    }
}

fn quoted(body: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in body.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    body.len()
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Every path that `tokens` mention, with braces spelled out.
pub(super) fn paths<'a>(tokens: &[Placed<'a>]) -> Vec<CodePath<'a>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        at = path(tokens, at, &mut Vec::new(), &mut found).max(at + 1);
    }
    found
}

/// Reads one path from `at` on, below `prefix`; gives the index after it.
fn path<'a>(
    tokens: &[Placed<'a>],
    mut at: usize,
    prefix: &mut Vec<&'a str>,
    found: &mut Vec<CodePath<'a>>,
) -> usize {
    let depth = prefix.len();
    let mut line = 0;
    while let Some(placed) = tokens.get(at) {
        match placed.token {
            Token::Word(word) => prefix.push(word),
            Token::Mark('*') if depth > 0 || prefix.len() > depth => prefix.push("*"),
            Token::Mark('{') if !prefix.is_empty() => {
                at = group(tokens, at + 1, prefix, found);
                prefix.truncate(depth);
                return at;
            }
            _ => break,
        }
        line = placed.line;
        at += 1;
        let ends = depth == 0 && matches!(prefix.as_slice(), [word] if NOT_IN_A_PATH.contains(word));
        match tokens.get(at).map(|placed| placed.token) {
            Some(Token::Joint) if !ends => at += 1,
            _ => break,
        }
    }
    if prefix.len() > depth {
        found.push(CodePath { line, segments: prefix.clone() });
    }
    prefix.truncate(depth);
    at
}

/// Reads the alternatives of a group up to its closing brace.
fn group<'a>(
    tokens: &[Placed<'a>],
    mut at: usize,
    prefix: &mut Vec<&'a str>,
    found: &mut Vec<CodePath<'a>>,
) -> usize {
    while let Some(placed) = tokens.get(at) {
        if placed.token == Token::Mark('}') {
            return at + 1;
        }
        at = path(tokens, at, prefix, found).max(at + 1);
    }
    at
}
