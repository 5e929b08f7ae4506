//! What the API server sends, object by object. Enters: a list's body or a watch's line; leaves: objects, stripped to
//! what is read, and where to go on. One malformed object costs itself and is counted. Must not know what is kept.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use firedoor_core::object::Object;

use super::api::{ApiError, Meter, Served, status};
use super::strip::strip;

/// One page of a list.
pub(super) struct List {
    pub(super) objects: Vec<Object>,
    /// How many objects there were, malformed ones included.
    pub(super) found: usize,
    /// The version to watch from.
    pub(super) version: String,
    /// What to ask for the next page with.
    pub(super) next: Option<String>,
}

#[derive(Deserialize)]
struct RawList<'b> {
    #[serde(default)]
    metadata: ListMeta,
    /// `null` in some answers for "none".
    #[serde(borrow, default)]
    items: Option<Vec<&'b RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// Reads a page. Only one object at a time is a tree; the rest is the page's own bytes.
pub(super) fn list(body: &[u8], served: &Served, meter: &Meter) -> Result<List, ApiError> {
    let raw: RawList<'_> =
        serde_json::from_slice(body).map_err(|why| ApiError::Malformed(format!("a list: {why}")))?;
    let items = raw.items.unwrap_or_default();
    let found = items.len();
    let mut objects = Vec::with_capacity(found);
    for item in items {
        match object(item, served) {
            Some(object) => objects.push(object),
            None => meter.malformed(),
        }
    }
    let next = raw.metadata.next.filter(|next| !next.is_empty());
    Ok(List { objects, found, version: raw.metadata.resource_version, next })
}

/// An object of this kind. Items of a list do not say what they are: the list does.
fn object(raw: &RawValue, served: &Served) -> Option<Object> {
    from_value(serde_json::from_str(raw.get()).ok()?, served)
}

/// An object that was got by itself.
pub(super) fn single(body: &[u8], served: &Served) -> Result<Object, ApiError> {
    let value: Value =
        serde_json::from_slice(body).map_err(|why| ApiError::Malformed(format!("an object: {why}")))?;
    from_value(value, served).ok_or_else(|| ApiError::Malformed("an object without a name".to_owned()))
}

fn from_value(mut value: Value, served: &Served) -> Option<Object> {
    let fields = value.as_object_mut()?;
    if fields.get("kind").is_some_and(|kind| kind.as_str() != Some(&served.kind)) {
        return None;
    }
    fields.insert("kind".to_owned(), Value::from(served.kind.as_str()));
    fields.insert("apiVersion".to_owned(), Value::from(served.api_version.as_str()));
    strip(&mut value);
    let object = Object::from_value(value).ok()?;
    // A tree takes ten times the room of its text.
    (object.namespace().is_some() == served.namespaced).then(|| object.packed())
}

/// What a line of a watch tells.
pub(super) enum Told {
    /// Added or modified, and the version this is.
    Put(Object, String),
    /// Deleted or no longer selected.
    Removed(Object, String),
    /// Nothing happened up to this version.
    Bookmark(String),
    /// The watch is over.
    Error(ApiError),
    /// Not understood.
    Malformed,
}

impl Told {
    /// The version to go on from.
    pub(super) fn version(&self) -> Option<&str> {
        match self {
            Self::Put(_, version) | Self::Removed(_, version) | Self::Bookmark(version) => {
                Some(version).filter(|version| !version.is_empty()).map(String::as_str)
            }
            Self::Error(_) | Self::Malformed => None,
        }
    }
}

#[derive(Deserialize)]
struct RawEvent<'b> {
    #[serde(borrow, rename = "type")]
    what: Cow<'b, str>,
    #[serde(borrow)]
    object: &'b RawValue,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Versioned {
    metadata: Version,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Version {
    resource_version: String,
}

/// Reads a line of a watch.
pub(super) fn line(line: &[u8], served: &Served) -> Told {
    let Ok(event) = serde_json::from_slice::<RawEvent<'_>>(line) else { return Told::Malformed };
    if event.what == "ERROR" {
        return Told::Error(status(event.object.get().as_bytes(), 500, None));
    }
    let Ok(Versioned { metadata }) = serde_json::from_str(event.object.get()) else { return Told::Malformed };
    let version = metadata.resource_version;
    if event.what == "BOOKMARK" {
        return Told::Bookmark(version);
    }
    let Some(object) = object(event.object, served) else { return Told::Malformed };
    match &*event.what {
        "ADDED" | "MODIFIED" => Told::Put(object, version),
        "DELETED" => Told::Removed(object, version),
        _ => Told::Malformed,
    }
}
