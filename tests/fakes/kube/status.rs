//! Errors as the real server writes them: a `metav1.Status` with reason, code and details; for paths it does not know,
//! plain text.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use serde_json::{Value, json};

/// A body, whole or streamed.
pub(crate) type Body = BoxBody<Bytes, std::io::Error>;

pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

pub(crate) fn answer(code: u16, kind: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).expect("a code");
    response.headers_mut().insert(header::CONTENT_TYPE, kind.parse().expect("a type"));
    response
}

pub(crate) fn object(code: u16, value: &Value) -> Response<Body> {
    answer(code, "application/json", whole(value.to_string()))
}

/// The error object itself.
pub(crate) fn status(code: u16, reason: &str, message: &str, details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": details, "code": code})
}

pub(crate) fn error(code: u16, reason: &str, message: &str, details: &Value) -> Response<Body> {
    object(code, &status(code, reason, message, details))
}

/// Why there is nothing else to answer.
pub(crate) type Refusal = Box<Response<Body>>;

pub(crate) fn refusal(code: u16, reason: &str, message: &str, details: &Value) -> Refusal {
    Box::new(error(code, reason, message, details))
}

pub(crate) fn not_found(plural: &str, name: &str) -> Response<Body> {
    let details = json!({"name": name, "kind": plural});
    error(404, "NotFound", &format!("{plural} \"{name}\" not found"), &details)
}

/// A path that nobody serves.
pub(crate) fn no_such_path() -> Response<Body> {
    answer(404, "text/plain; charset=utf-8", whole("404 page not found\n"))
}

pub(crate) fn unauthorized() -> Response<Body> {
    let mut status = status(401, "Unauthorized", "Unauthorized", &Value::Null);
    status.as_object_mut().expect("an object").remove("details");
    object(401, &status)
}

pub(crate) fn forbidden(
    verb: &str,
    group: &str,
    plural: &str,
    name: Option<&str>,
    namespace: Option<&str>,
) -> Response<Body> {
    let named = name.map_or(String::new(), |name| format!(" \"{name}\""));
    let scope = namespace.map_or("at the cluster scope".to_owned(), |n| format!("in the namespace \"{n}\""));
    let of = if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") };
    let message = format!(
        "{of}{named} is forbidden: User \"system:serviceaccount:firedoor:firedoor\" cannot {verb} resource \"{plural}\" in API group \"{group}\" {scope}"
    );
    error(403, "Forbidden", &message, &json!({"name": name, "group": group, "kind": plural}))
}

pub(crate) fn too_many_requests(after: u64) -> Response<Body> {
    let message = "Too many requests, please try again later.";
    let mut response = error(429, "TooManyRequests", message, &json!({"retryAfterSeconds": after}));
    response.headers_mut().insert(header::RETRY_AFTER, after.into());
    response
}

pub(crate) fn expired_version(asked: u64, oldest: u64) -> Value {
    let message = format!("too old resource version: {asked} ({oldest})");
    let mut status = status(410, "Expired", &message, &Value::Null);
    status.as_object_mut().expect("an object").remove("details");
    status
}

pub(crate) fn expired_page() -> Response<Body> {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results.";
    let mut status = status(410, "Expired", message, &Value::Null);
    status["metadata"] = json!({"continue": "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTF9"});
    object(410, &status)
}
