//! Walls against traces of one machine. Enters: the tree; leaves: the lines that name a place of their own.
//! What is looked for is put together from halves here, so that this file does not find itself.

use super::Breach;
use super::tree::{Text, Tree};

/// Beginnings of paths that exist on somebody's machine only.
const PLACES: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
/// A folder beside the checkout.
const BESIDE: &str = concat!("../", "shared");
/// Hosts of package registries and their file stores.
const REGISTRIES: [&str; 8] = [
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("registry.npmjs", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("deb.debian", ".org"),
    concat!("/arti", "factory/"),
];
const LOCKED_SOURCE: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

/// No file names a path that exists on one machine only.
pub(super) fn machine_paths(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (file, line, text) in lines(tree) {
        let place = PLACES.into_iter().find(|place| begins_a_path(text, place));
        let place = place.or_else(|| text.contains(BESIDE).then_some(BESIDE));
        breaches.extend(place.map(|place| Breach::at(file.path, line, format!("names `{place}`"))));
    }
    breaches
}

/// Whether `place` occurs where a path may begin, not inside a longer path or address.
fn begins_a_path(text: &str, place: &str) -> bool {
    text.match_indices(place).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~*})]>/".contains(c))
    })
}

/// No file names a registry's host.
pub(super) fn registry_hosts(tree: &Tree) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for (file, line, text) in lines(tree) {
        let host = REGISTRIES.into_iter().find(|host| text.contains(host));
        breaches.extend(host.map(|host| Breach::at(file.path, line, format!("names `{host}`"))));
    }
    breaches
}

/// Everything in the lock file comes from the public registry.
pub(super) fn lock_sources(tree: &Tree) -> Vec<Breach> {
    let path = "Cargo.lock";
    let Some(text) = tree.text(path) else { return vec![Breach::file(path, "is missing")] };
    let sources = text.lines().enumerate().filter(|(_, line)| line.starts_with("source ="));
    let foreign = sources.filter(|(_, line)| *line != LOCKED_SOURCE);
    foreign.map(|(at, line)| Breach::at(path, at + 1, line)).collect()
}

fn lines(tree: &Tree) -> impl Iterator<Item = (Text<'_>, usize, &str)> {
    tree.texts().flat_map(|file| file.text.lines().enumerate().map(move |(at, text)| (file, at + 1, text)))
}
