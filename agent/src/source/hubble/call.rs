//! Calls whose answers are not decoded. Enters: a channel and a request; leaves: frames as they come, without a copy or a
//! decoder between network and observer. Must not know what is in them.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderValue, TE};
use http::uri::PathAndQuery;
use http::{Request, Uri, Version};
use http_body_util::Full;
use hyper::body::Body as _;
use prost::Message;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower_service::Service as _;

/// Where flows come from.
pub(super) const GET_FLOWS: &str = "/observer.Observer/GetFlows";
/// What says that a server lives without asking it for anything: a relay asks all its nodes before it tells how it is.
pub(super) const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// The answer to a call, frame by frame.
pub(super) struct Answer {
    body: Body,
}

/// Calls. Resolves when the answer begins.
///
/// # Errors
/// What the server answered instead, or why there is no answer.
pub(super) async fn call(
    channel: &Channel,
    path: &'static str,
    request: &impl Message,
) -> Result<Answer, Status> {
    let length = request.encoded_len();
    let mut framed = BytesMut::with_capacity(5 + length);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(length).map_err(|_| Status::out_of_range("the request is too long"))?);
    request.encode(&mut framed).map_err(|why| Status::internal(why.to_string()))?;
    let mut request = Request::new(Body::new(Full::new(framed.freeze())));
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = Uri::from(PathAndQuery::from_static(path));
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));

    let mut channel = channel.clone();
    let failed = |why: tonic::transport::Error| Status::unavailable(super::connect::chain(&why));
    std::future::poll_fn(|context| channel.poll_ready(context)).await.map_err(failed)?;
    let response = channel.call(request).await.map_err(failed)?;
    let (parts, body) = response.into_parts();
    if parts.status != http::StatusCode::OK {
        return Err(Status::unavailable(format!("the server answers HTTP {}", parts.status)));
    }
    // An answer that consists of its end only.
    if let Some(status) = Status::from_header_map(&parts.headers)
        && status.code() != Code::Ok
    {
        return Err(status);
    }
    Ok(Answer { body })
}

/// What comes next of an answer.
pub(super) enum Next {
    /// Bytes.
    Frame(Bytes),
    /// The end, and what the server said of it.
    End(Status),
}

impl Answer {
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        let next = match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => Next::Frame(bytes),
                Err(other) => {
                    let trailers = other.into_trailers().unwrap_or_default();
                    Next::End(Status::from_header_map(&trailers).unwrap_or_else(ended))
                }
            },
            Some(Err(why)) => Next::End(why),
            None => Next::End(ended()),
        };
        Poll::Ready(next)
    }
}

fn ended() -> Status {
    Status::unavailable("the stream ended without a word")
}
