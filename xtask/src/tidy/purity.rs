//! Walls about what code may use. Enters: the tree; leaves: the places that use more. Reads names, not types:
//! the compiler holds what it can, this holds the rest.

use super::Breach;
use super::lex::{CodePath, Placed, Token, paths, tokens};
use super::tree::{Text, Tree};

const CORE: &str = "agent/core/";
const CORE_MAY_USE: [&str; 6] = ["foldhash", "ipnet", "jiff", "serde", "serde_json", "thiserror"];
/// Modules of the standard library that reach outside the process.
const OUTSIDE: [&str; 5] = ["fs", "env", "process", "thread", "os"];
/// Types whose mere mention means a clock or a socket.
const CLOCKS_AND_SOCKETS: [&str; 9] = [
    "Instant",
    "SystemTime",
    "TcpListener",
    "TcpStream",
    "ToSocketAddrs",
    "UdpSocket",
    "UnixDatagram",
    "UnixListener",
    "UnixStream",
];
const TERMINAL: [&str; 4] = ["print", "println", "eprint", "eprintln"];
const UNFINISHED: [&str; 3] = ["todo", "unimplemented", "dbg"];
const MAY_BE_UNSAFE: [&str; 2] = ["agent-ebpf/", "agent/src/source/ebpf"];

/// The core's manifest names only harmless crates, and no build script.
pub(super) fn core_dependencies(tree: &Tree) -> Vec<Breach> {
    let path = "agent/core/Cargo.toml";
    let Some(text) = tree.text(path) else { return vec![Breach::file(path, "there is no core")] };
    let manifest: toml::Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![Breach::file(path, format!("cannot be read: {error}"))],
    };
    let mut breaches = Vec::new();
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let tables = targets.into_iter().flat_map(|t| t.values()).filter_map(toml::Value::as_table);
    for table in tables.chain([&manifest]) {
        if table.contains_key("build-dependencies") {
            breaches.push(Breach::file(path, "the core has a build script's dependencies"));
        }
        let dependencies = table.get("dependencies").and_then(toml::Value::as_table);
        for (name, value) in dependencies.into_iter().flatten() {
            // A dependency may be renamed: what counts is the package.
            let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(name);
            if !CORE_MAY_USE.contains(&package) {
                breaches.push(Breach::file(path, format!("the core depends on {package}")));
            }
        }
    }
    if tree.files().any(|file| file == "agent/core/build.rs") {
        breaches.push(Breach::file("agent/core/build.rs", "the core has a build script"));
    }
    breaches
}

/// The core's source mentions nothing that reaches outside.
pub(super) fn core_source(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for Text { path, text } in tree.rust().filter(|file| file.path.starts_with(CORE)) {
        let tokens = tokens(text);
        for mentioned in paths(&tokens) {
            if let Some(what) = reaches_outside(&mentioned) {
                let name = mentioned.segments.join("::");
                breaches.push(Breach::at(path, mentioned.line, format!("`{name}`: {what}")));
            }
        }
        for (line, name) in macros(&tokens).filter(|(_, name)| TERMINAL.contains(name)) {
            breaches.push(Breach::at(path, line, format!("`{name}!`: the terminal")));
        }
    }
    breaches
}

fn reaches_outside(path: &CodePath<'_>) -> Option<&'static str> {
    let segments = path.segments.as_slice();
    match segments {
        ["std"] | ["std", "self" | "*"] => return Some("all of std under another name"),
        ["std", module, ..] if OUTSIDE.contains(module) => return Some("outside the process"),
        ["std", "io", "stdin" | "stdout" | "stderr" | "*", ..] => return Some("the terminal"),
        ["std", "net" | "time", "*"] => return Some("a glob that brings sockets or a clock"),
        [.., kind, "now"] if kind.starts_with(char::is_uppercase) => return Some("a clock"),
        _ => {}
    }
    let sensitive = segments.iter().any(|segment| CLOCKS_AND_SOCKETS.contains(segment));
    sensitive.then_some("a clock or a socket")
}

/// `unsafe` only where the kernel is spoken to.
pub(super) fn unsafe_code(tree: &Tree) -> Vec<Breach> {
    let guarded = tree.rust().filter(|file| !MAY_BE_UNSAFE.iter().any(|place| file.path.starts_with(place)));
    let mut breaches = Vec::new();
    for Text { path, text } in guarded {
        let found = tokens(text).into_iter().filter(|placed| placed.token == Token::Word("unsafe"));
        breaches.extend(found.map(|placed| Breach::at(path, placed.line, "unsafe code")));
    }
    breaches
}

/// No placeholders and no debugging leftovers.
pub(super) fn unfinished(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for Text { path, text } in tree.rust() {
        let tokens = tokens(text);
        let found = macros(&tokens).filter(|(_, name)| UNFINISHED.contains(name));
        breaches.extend(found.map(|(line, name)| Breach::at(path, line, format!("`{name}!`"))));
    }
    breaches
}

/// The macros that are called: a word, an exclamation mark, an opening bracket.
fn macros<'a>(tokens: &'a [Placed<'a>]) -> impl Iterator<Item = (usize, &'a str)> {
    tokens.windows(3).filter_map(|three| match (three[0].token, three[1].token, three[2].token) {
        (Token::Word(name), Token::Mark('!'), Token::Mark('(' | '[' | '{')) => Some((three[0].line, name)),
        _ => None,
    })
}
