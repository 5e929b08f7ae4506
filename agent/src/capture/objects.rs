//! Kubernetes objects from files, as `kubectl get -o yaml|json` prints them: single, several documents in a
//! file, lists, lists within lists. A damaged document is reported; the others are read.

use std::path::{Path, PathBuf};

use firedoor_core::object::Object;
use serde_json::Value;

use super::Problems;
use crate::harmless::harmless;

/// Lists may hold lists, but not without end.
const MAX_NESTING: usize = 8;

/// Reads all objects of all files, in the order of the files.
pub fn read(files: &[PathBuf], problems: &mut Problems) -> Vec<Object> {
    let mut objects = Vec::new();
    for file in files {
        match text(file) {
            Ok(text) => read_text(file, &text, &mut objects, problems),
            Err(what) => problems.note(file, 0, what),
        }
    }
    objects
}

/// A file's text, when it is of a size that can be one.
///
/// # Errors
/// Why it cannot be read.
pub fn text(file: &Path) -> Result<String, String> {
    String::from_utf8(super::contents(file)?)
        .map_err(|e| format!("not UTF-8 text from byte {} on: not read", e.utf8_error().valid_up_to()))
}

/// Reads the objects of one text.
pub fn read_text(file: &Path, text: &str, objects: &mut Vec<Object>, problems: &mut Problems) {
    pieces(text, &mut |line, piece| match piece {
        Piece::Object(object) => objects.push(object),
        Piece::Foreign(what) | Piece::Damaged(what) => problems.note(file, line, what),
    });
}

/// What stands in a text.
pub enum Piece {
    /// An object.
    Object(Object),
    /// A document that is no Kubernetes object, in words.
    Foreign(String),
    /// Something that cannot be read, in words.
    Damaged(String),
}

/// Goes through a text: YAML documents, or JSON values one after the other in their place. Each piece comes with the
/// first line of its document, from 1; of what is damaged, with the line of the damage.
pub fn pieces(text: &str, each: &mut dyn FnMut(u64, Piece)) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (line, document) in documents(text) {
        if document.trim_start().starts_with('{') {
            json_pieces(line, document, each);
            continue;
        }
        let is_content = |l: &str| !l.trim().is_empty() && !l.trim_start().starts_with('#');
        let Some(first) = document.lines().position(is_content) else { continue };
        match yaml(document) {
            Ok(Value::Null) => {}
            Ok(value) => collect(line + first as u64, value, 0, each),
            Err(what) => each(line, Piece::Damaged(format!("damaged YAML document: {}", in_document(&what)))),
        }
    }
}

/// Goes through JSON values that begin in this line.
fn json_pieces(first_line: u64, text: &str, each: &mut dyn FnMut(u64, Piece)) {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let (mut line, mut seen) = (first_line, 0);
    loop {
        let rest = text.get(values.byte_offset()..).unwrap_or_default();
        let start = values.byte_offset() + (rest.len() - rest.trim_start().len());
        line += text.get(seen..start).unwrap_or_default().matches('\n').count() as u64;
        seen = start;
        match values.next() {
            None => return,
            Some(Ok(value)) => collect(line, value, 0, each),
            Some(Err(error)) => {
                let what = format!("damaged JSON in column {}: {}", error.column(), said(&error.to_string()));
                each(first_line + (error.line() as u64).saturating_sub(1), Piece::Damaged(what));
                return;
            }
        }
    }
}

/// Parses one YAML document.
///
/// # Errors
/// What is wrong, with the line within the document.
pub fn yaml(document: &str) -> Result<Value, String> {
    // Anchors that multiply ("billion laughs") stay bounded; plain size is bounded by the file.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: None,
            max_events: usize::MAX,
            max_nodes: usize::MAX,
            max_total_scalar_bytes: usize::MAX,
            max_recorded_anchor_events: 20_000,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 20_000 },
    };
    serde_saphyr::from_str_with_options(document, options).map_err(|e| e.to_string())
}

/// The documents of a YAML text, each with the number of its first line. A separator starts in the first column;
/// block scalars are indented, so that no content can be taken for one.
fn documents(text: &str) -> Vec<(u64, &str)> {
    let mut documents = Vec::new();
    let (mut start, mut first_line, mut offset) = (0, 1, 0);
    for (number, line) in (1_u64..).zip(text.split_inclusive('\n')) {
        let bare = line.trim_end();
        if bare == "---" || bare.starts_with("--- ") || bare == "..." {
            documents.push((first_line, &text[start..offset]));
            // What follows the dashes on their line belongs to the new document.
            start = if bare.starts_with("--- ") { offset + 4 } else { offset + line.len() };
            first_line = if bare.starts_with("--- ") { number } else { number + 1 };
        }
        offset += line.len();
    }
    documents.push((first_line, &text[start..]));
    documents
}

fn collect(line: u64, mut value: Value, depth: usize, each: &mut dyn FnMut(u64, Piece)) {
    let is_list = value.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    if let (true, Some(Value::Array(items))) = (is_list, value.get_mut("items")) {
        if depth >= MAX_NESTING {
            let what =
                format!("lists within lists, more than {MAX_NESTING} deep: the innermost are not read");
            each(line, Piece::Damaged(what));
            return;
        }
        let items = std::mem::take(items);
        let (kind, api_version) = item_type(&value);
        for mut item in items {
            // Typed lists (PodList) may leave the type out of their items.
            if let Some(map) = item.as_object_mut() {
                map.entry("kind").or_insert_with(|| Value::from(kind.clone()));
                map.entry("apiVersion").or_insert_with(|| Value::from(api_version.clone()));
            }
            collect(line, item, depth + 1, each);
        }
        return;
    }
    strip(&mut value);
    name_generated(&mut value);
    match Object::from_value(value) {
        Ok(object) => each(line, Piece::Object(object)),
        Err(value) => {
            let shown: String = value.to_string().chars().take(60).collect();
            let what = format!("no Kubernetes object (kind and metadata.name are missing): {}", said(&shown));
            each(line, Piece::Foreign(what));
        }
    }
}

/// A manifest may leave the end of its name to the API server.
fn name_generated(value: &mut Value) {
    let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if let (None, Some(Value::String(stem))) = (metadata.get("name"), metadata.get("generateName")) {
        let name = format!("{stem}generated");
        metadata.insert("name".to_owned(), Value::from(name));
    }
}

fn item_type(list: &Value) -> (String, String) {
    let text = |field: &str| list.get(field).and_then(Value::as_str).unwrap_or_default();
    (text("kind").trim_end_matches("List").to_owned(), text("apiVersion").to_owned())
}

/// Takes out what is large and never needed.
fn strip(value: &mut Value) {
    let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.remove("managedFields");
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

/// The parser's one sentence, without the excerpt that it draws below.
fn in_document(what: &str) -> String {
    let sentence = what.lines().next().unwrap_or_default();
    let sentence = sentence.strip_prefix("error: ").unwrap_or(sentence);
    let place = if sentence.starts_with("line ") { "at its " } else { "" };
    format!("{place}{}", said(sentence))
}

/// Text from outside, harmless for a terminal and not too long.
fn said(text: &str) -> String {
    harmless(&text.chars().take(200).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_documents_may_be_separated_as_yaml_ones_are() {
        let pod = |name: &str| {
            format!(r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{name}"}}}}"#)
        };
        let yaml = "apiVersion: v1\nkind: Pod\nmetadata: {name: e}";
        let text =
            [&pod("a"), "---", &pod("b"), &pod("c"), "---", "{\"kind\": ]}", "--- ", &pod("d"), "---", yaml]
                .join("\n");
        let (mut names, mut damaged) = (Vec::new(), Vec::new());
        pieces(&text, &mut |line, piece| match piece {
            Piece::Object(object) => names.push((line, object.key().name.to_string())),
            Piece::Foreign(what) | Piece::Damaged(what) => damaged.push((line, what)),
        });
        let expected = [(1, "a"), (3, "b"), (4, "c"), (8, "d"), (10, "e")];
        assert_eq!(names, expected.map(|(line, name)| (line, name.to_owned())));
        assert!(damaged.len() == 1 && damaged[0].0 == 6, "{damaged:?}");
        assert!(damaged[0].1.starts_with("damaged JSON in column"), "{damaged:?}");
    }
}
