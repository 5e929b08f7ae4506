//! An Ethernet frame, as far as the wire has to know it. Enters: bytes; leaves: addresses and the TCP segment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses and segment of an IP packet.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    /// `None`: not TCP.
    pub(super) segment: Option<Segment>,
}

/// A TCP segment.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) flags: u8,
    /// Bytes of payload.
    pub(super) payload: usize,
}

const TCP: u8 = 6;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

impl Frame {
    /// Reads a frame; `None` when it holds no IP packet.
    pub(super) fn read(frame: &[u8]) -> Option<Self> {
        let packet = frame.get(14..)?;
        match frame.get(12..14)? {
            [0x08, 0x00] => {
                let header = usize::from(packet.first()? & 0x0f) * 4;
                let length = usize::from(u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?));
                let address = |at: usize| -> Option<IpAddr> {
                    Some(Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?).into())
                };
                let segment = (*packet.get(9)? == TCP).then(|| Segment::read(packet.get(header..length)?));
                Some(Self { src: address(12)?, dst: address(16)?, segment: segment.flatten() })
            }
            [0x86, 0xdd] => {
                let length = usize::from(u16::from_be_bytes(packet.get(4..6)?.try_into().ok()?));
                let address = |at: usize| -> Option<IpAddr> {
                    Some(Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?).into())
                };
                let segment = (*packet.get(6)? == TCP).then(|| Segment::read(packet.get(40..40 + length)?));
                Some(Self { src: address(8)?, dst: address(24)?, segment: segment.flatten() })
            }
            _ => None,
        }
    }

    /// Whether it opens a connection: SYN without ACK.
    pub(super) fn is_opening(&self) -> bool {
        self.segment.as_ref().is_some_and(|segment| segment.flags & (SYN | ACK) == SYN)
    }
}

impl Segment {
    fn read(bytes: &[u8]) -> Option<Self> {
        let header = usize::from(bytes.get(12)? >> 4) * 4;
        Some(Self { flags: *bytes.get(13)?, payload: bytes.len().checked_sub(header)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: [u8; 2], ip: &[u8], tcp: &[u8]) -> Vec<u8> {
        [&[0; 12][..], &kind, ip, tcp].concat()
    }

    fn tcp(flags: u8, payload: usize) -> Vec<u8> {
        let mut bytes = vec![0; 20 + payload];
        bytes[12] = 0x50;
        bytes[13] = flags;
        bytes
    }

    #[test]
    fn a_syn_is_an_opening_in_both_families() {
        let mut four = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, TCP, 0, 0];
        four.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        let read = Frame::read(&frame([8, 0], &four, &tcp(SYN, 0))).unwrap();
        assert!(read.is_opening());
        assert_eq!(read.dst.to_string(), "10.0.0.2");
        assert!(!Frame::read(&frame([8, 0], &four, &tcp(SYN | ACK, 0))).unwrap().is_opening());
        let mut six = vec![0x60, 0, 0, 0, 0, 25, TCP, 64];
        six.extend([0; 32]);
        let read = Frame::read(&frame([0x86, 0xdd], &six, &tcp(ACK, 5))).unwrap();
        assert_eq!(read.segment, Some(Segment { flags: ACK, payload: 5 }));
    }

    #[test]
    fn what_is_cut_short_is_no_packet_and_padding_is_no_payload() {
        assert_eq!(Frame::read(&[0; 13]), None);
        assert_eq!(Frame::read(&frame([8, 0], &[0x45], &[])), None);
        let mut four = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, TCP, 0, 0];
        four.extend([0; 8]);
        let padded = [frame([8, 0], &four, &tcp(ACK, 0)), vec![0; 6]].concat();
        assert_eq!(Frame::read(&padded).unwrap().segment.unwrap().payload, 0);
    }
}
