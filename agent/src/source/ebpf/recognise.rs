//! What is spoken on a connection, by the first bytes it received.

use firedoor_core::observation::App;

/// NCCL's magic for data sockets, since 2.16 (`ncclSocket`, `NCCL_SOCKET_MAGIC`), as it goes over the wire.
const NCCL_DATA: [u8; 8] = 0x564a_b9f2_fc4b_9d6c_u64.to_le_bytes();
/// The magic of the bootstrap when `NCCL_COMM_ID` is set.
const NCCL_COMM_ID: [u8; 8] = 0x0280_0280_0280_0280_u64.to_le_bytes();
/// Types of NCCL sockets that follow a magic which is random for each communicator: bootstrap and proxy.
const NCCL_BOOTSTRAP: [u32; 2] = [1, 2];
/// NCCL sends 12 bytes first: the magic and the type.
const NCCL_FIRST: usize = 12;
/// PyTorch's TCPStore: the validation command and its magic number.
const TCPSTORE: [u8; 5] = [0x00, 0xce, 0xf7, 0x85, 0x3c];
/// HTTP/2's preface (RFC 9113, 3.4), as far as it is looked at.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A TLS handshake record (RFC 8446, 5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// The protocol, when the first bytes tell it. `whole`: whether these are all the bytes of the first segment.
pub(super) fn recognise(first: &[u8], whole: bool) -> Option<App> {
    if first.starts_with(&TCPSTORE) {
        return Some(App::TcpStore);
    }
    if first.len() >= 16 && HTTP2.starts_with(&first[..first.len().min(HTTP2.len())]) {
        return Some(App::Grpc);
    }
    if let [TLS_HANDSHAKE, 3, 1..=4, ..] = first {
        return Some(App::Tls);
    }
    let magic = first.get(..8)?;
    let kind = u32::from_le_bytes(first.get(8..NCCL_FIRST)?.try_into().ok()?);
    let known = magic == NCCL_DATA || magic == NCCL_COMM_ID;
    // A random magic is believed only where the message is exactly as long as NCCL's.
    let random = whole && first.len() == NCCL_FIRST && NCCL_BOOTSTRAP.contains(&kind) && magic != [0; 8];
    (known || random).then_some(App::Nccl)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_first_bytes() {
        let nccl = [&NCCL_DATA[..], &[3, 0, 0, 0]].concat();
        assert_eq!(recognise(&nccl, true), Some(App::Nccl));
        assert_eq!(recognise(&nccl, false), Some(App::Nccl));
        let bootstrap = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 1, 0, 0, 0];
        assert_eq!(recognise(&bootstrap, true), Some(App::Nccl));
        assert_eq!(recognise(&bootstrap, false), None);
        assert_eq!(recognise(&[0; 12], true), None);
        assert_eq!(recognise(&[0x00, 0xce, 0xf7, 0x85, 0x3c, 0x0c], true), Some(App::TcpStore));
        assert_eq!(recognise(HTTP2, false), Some(App::Grpc));
        assert_eq!(recognise(b"GET / HTTP/1.1\r\nHost", false), None);
        assert_eq!(recognise(&[0x16, 3, 1, 2, 0, 1], false), Some(App::Tls));
        assert_eq!(recognise(&[], true), None);
    }
}
