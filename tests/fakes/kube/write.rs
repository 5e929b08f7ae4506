//! Creating, changing and deleting, as far as clients here do it: create with `generateName`, merge patches, whole
//! updates with their version held against the object's, the status apart from the rest, deletion at once.

use http::Response;
use serde_json::{Value, json};

use super::Shared;
use super::answer::Request;
use super::status::{Body, Refusal, not_found, object, refusal};
use super::store::Store;

/// Makes the change, if it may be made.
pub(crate) fn write(shared: &Shared, request: &Request) -> Response<Body> {
    let response = match request.method.as_str() {
        "POST" => create(shared, request),
        "PUT" => update(shared, request),
        "PATCH" => patch(shared, request),
        "DELETE" if request.name.is_some() => delete(shared, request),
        _ => Err(refusal(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
            &Value::Null,
        )),
    };
    shared.touch();
    response.unwrap_or_else(|wrong| *wrong)
}

fn body(request: &Request) -> Result<Value, Refusal> {
    let value: Value = serde_json::from_slice(&request.body).map_err(|why| {
        refusal(400, "BadRequest", &format!("the object provided is unrecognized: {why}"), &Value::Null)
    })?;
    if value.is_object() { Ok(value) } else { Err(refusal(400, "BadRequest", "not an object", &Value::Null)) }
}

fn create(shared: &Shared, request: &Request) -> Result<Response<Body>, Refusal> {
    let mut value = body(request)?;
    if let Some(namespace) = &request.namespace {
        let told = value.pointer("/metadata/namespace").and_then(Value::as_str);
        if told.is_some_and(|told| told != namespace) {
            let message =
                "the namespace of the provided object does not match the namespace sent on the request";
            return Err(refusal(400, "BadRequest", message, &Value::Null));
        }
        value["metadata"]["namespace"] = json!(namespace);
    }
    let mut state = shared.lock();
    if let (None, Some(prefix)) =
        (value["metadata"]["name"].as_str(), value["metadata"]["generateName"].as_str())
    {
        value["metadata"]["name"] = json!(format!("{prefix}{:05}", state.store.version % 100_000));
    }
    let Some(name) = value["metadata"]["name"].as_str().map(str::to_owned) else {
        let message = "resource name may not be empty";
        return Err(refusal(422, "Invalid", message, &Value::Null));
    };
    let key = Store::key(&request.kind, request.namespace.as_deref(), &name);
    if state.store.objects.contains_key(&key) {
        let details = json!({"name": name, "kind": request.kind.plural});
        return Err(refusal(
            409,
            "AlreadyExists",
            &format!("{} \"{name}\" already exists", request.kind.plural),
            &details,
        ));
    }
    if value["metadata"]["creationTimestamp"].is_null() {
        value["metadata"]["creationTimestamp"] = json!("2026-11-01T09:00:00Z");
    }
    let made = state.store.put(&request.kind, value);
    Ok(object(201, &made))
}

fn current(shared: &Shared, request: &Request) -> Result<Value, Refusal> {
    let name = request.name.as_deref().unwrap_or_default();
    let key = Store::key(&request.kind, request.namespace.as_deref(), name);
    let found = shared.lock().store.objects.get(&key).cloned();
    found.map(|found| Value::clone(&found)).ok_or_else(|| Box::new(not_found(&request.kind.plural, name)))
}

fn update(shared: &Shared, request: &Request) -> Result<Response<Body>, Refusal> {
    let before = current(shared, request)?;
    let value = body(request)?;
    let version = value.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
    if !version.is_empty() && before["metadata"]["resourceVersion"] != version {
        let message = "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again";
        return Err(refusal(
            409,
            "Conflict",
            message,
            &json!({"name": request.name, "kind": request.kind.plural}),
        ));
    }
    Ok(changed(shared, request, &before, value))
}

fn patch(shared: &Shared, request: &Request) -> Result<Response<Body>, Refusal> {
    let before = current(shared, request)?;
    let form = request.headers.get("content-type").and_then(|form| form.to_str().ok()).unwrap_or_default();
    if !["application/merge-patch+json", "application/strategic-merge-patch+json"].contains(&form) {
        return Err(refusal(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format",
            &Value::Null,
        ));
    }
    let mut value = before.clone();
    merge(&mut value, &body(request)?);
    Ok(changed(shared, request, &before, value))
}

/// The status subresource changes the status alone, everything else all but it, where there is one.
fn changed(shared: &Shared, request: &Request, before: &Value, mut value: Value) -> Response<Body> {
    if request.subresource.as_deref() == Some("status") {
        let status = value["status"].take();
        value = before.clone();
        value["status"] = status;
    }
    value["metadata"]["uid"] = before["metadata"]["uid"].clone();
    let made = shared.lock().store.put(&request.kind, value);
    object(200, &made)
}

fn delete(shared: &Shared, request: &Request) -> Result<Response<Body>, Refusal> {
    current(shared, request)?;
    let name = request.name.as_deref().unwrap_or_default();
    let key = Store::key(&request.kind, request.namespace.as_deref(), name);
    shared.lock().store.delete(&key);
    Ok(object(200, &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})))
}

/// JSON merge patch (RFC 7396). Strategic merge patches are taken for it: nobody here patches lists.
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (field, value) in fields {
        if value.is_null() {
            target.as_object_mut().expect("made one above").remove(field);
        } else {
            merge(&mut target[field.as_str()], value);
        }
    }
}
