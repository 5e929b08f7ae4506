//! A server that is never the bottleneck: HTTP/2 by hand, one message a DATA frame as Go's gRPC writes them, many frames a
//! write. Enters: a socket; leaves: as many flows as the windows allow. Every call but the one for flows is answered
//! "unimplemented". Must not decode anything.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::world::templates;

const PREFACE: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// Frames of one write.
const AT_ONCE: usize = 64;

/// What may still be sent.
#[derive(Default)]
struct Windows {
    connection: i64,
    stream: i64,
    flowing: bool,
    gone: bool,
}

type Shared = Arc<(Mutex<Windows>, Condvar)>;

/// Serves one connection after the other, for ever. Flows come on the stream with this number: calls are told apart by
/// the order in which clients make them.
pub(crate) fn serve(path: &Path, flows: u32) {
    let listener = UnixListener::bind(path).expect("the socket can be bound");
    let templates = templates();
    for socket in listener.incoming() {
        let socket = socket.expect("a connection");
        let shared: Shared = Arc::default();
        let writing = Arc::new(Mutex::new(socket.try_clone().expect("a second handle")));
        let (answers, state) = (Arc::clone(&writing), Arc::clone(&shared));
        let reader = std::thread::spawn(move || read(socket, &answers, &state, flows));
        send(&writing, &shared, &templates, flows);
        let _ = reader.join();
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(9 + payload.len());
    header(&mut bytes, kind, flags, stream, payload.len());
    bytes.extend_from_slice(payload);
    bytes
}

fn header(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, length: usize) {
    bytes.extend_from_slice(&u32::try_from(length).expect("short").to_be_bytes()[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
}

/// `:status: 200` and `content-type: application/grpc`, and the status of a call that is not known.
fn headers(unimplemented: bool) -> Vec<u8> {
    let mut block = vec![0x88];
    let mut literal = |name: &str, value: &str| {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).expect("short"));
            block.extend_from_slice(text.as_bytes());
        }
    };
    literal("content-type", "application/grpc");
    if unimplemented {
        literal("grpc-status", "12");
    }
    block
}

fn write(to: &Mutex<UnixStream>, bytes: &[u8]) -> bool {
    bytes.is_empty() || to.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes).is_ok()
}

fn read(mut socket: UnixStream, to: &Mutex<UnixStream>, shared: &Shared, flows: u32) {
    let mut preface = [0; PREFACE];
    let mut initial = 65_535_i64;
    if socket.read_exact(&mut preface).is_ok() && write(to, &frame(SETTINGS, 0, 0, &[])) {
        shared.0.lock().unwrap_or_else(PoisonError::into_inner).connection = 65_535;
        let mut head = [0; 9];
        while socket.read_exact(&mut head).is_ok() {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let (kind, flags) = (head[3], head[4]);
            let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
            let mut payload = vec![0; length];
            if socket.read_exact(&mut payload).is_err() {
                break;
            }
            let mut windows = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
            let reply = match kind {
                SETTINGS if flags & ACK == 0 => {
                    for setting in payload.chunks_exact(6) {
                        if setting[..2] == [0, 4] {
                            initial = i64::from(u32::from_be_bytes([
                                setting[2], setting[3], setting[4], setting[5],
                            ]));
                        }
                    }
                    frame(SETTINGS, ACK, 0, &[])
                }
                PING if flags & ACK == 0 => frame(PING, ACK, 0, &payload),
                WINDOW_UPDATE => {
                    let more =
                        i64::from(u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]));
                    if stream == 0 {
                        windows.connection += more;
                    } else if stream == flows {
                        windows.stream += more;
                    }
                    Vec::new()
                }
                HEADERS if stream == flows => {
                    // Before any data.
                    write(to, &frame(HEADERS, END_HEADERS, stream, &headers(false)));
                    windows.stream += initial;
                    windows.flowing = true;
                    Vec::new()
                }
                HEADERS => frame(HEADERS, END_HEADERS | END_STREAM, stream, &headers(true)),
                _ => Vec::new(),
            };
            drop(windows);
            shared.1.notify_one();
            if !write(to, &reply) {
                break;
            }
        }
    }
    shared.0.lock().unwrap_or_else(PoisonError::into_inner).gone = true;
    shared.1.notify_one();
}

fn send(to: &Mutex<UnixStream>, shared: &Shared, templates: &[crate::world::Template], flows: u32) {
    let mut number = 0_u64;
    let mut bytes = Vec::with_capacity(AT_ONCE * 2048);
    loop {
        bytes.clear();
        let first = number;
        let mut size = 0_i64;
        for offset in 0..AT_ONCE as u64 {
            let number = first + offset;
            let template = &templates[number as usize % templates.len()];
            let length = template.bytes.len() + 5;
            header(&mut bytes, DATA, 0, flows, length);
            bytes.push(0);
            bytes.extend_from_slice(&u32::try_from(template.bytes.len()).expect("short").to_be_bytes());
            let at = bytes.len();
            bytes.extend_from_slice(&template.bytes);
            template.stamp(&mut bytes[at..], number);
            size += length as i64;
        }
        number += AT_ONCE as u64;
        let mut windows = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let may = |windows: &Windows| windows.flowing && windows.connection.min(windows.stream) >= size;
        while !windows.gone && !may(&windows) {
            windows = shared.1.wait(windows).unwrap_or_else(PoisonError::into_inner);
        }
        if windows.gone {
            return;
        }
        windows.connection -= size;
        windows.stream -= size;
        drop(windows);
        if !write(to, &bytes) {
            return;
        }
    }
}
