//! The ends of a packet, read from its headers. IPv4 and IPv6 without extension headers.

use aya_ebpf::helpers::bpf_probe_read_kernel;
use firedoor_ebpf::{AF_INET, AF_INET6, PacketKind};

use super::globals::load;

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// The part of IPv4's fragment field that is an offset.
const FRAGMENT_OFFSET: u16 = 0x1fff;
/// Ports below this belong to services.
const FIRST_USER_PORT: u16 = 1024;

/// The ends of a packet.
pub(super) struct Packet {
    pub(super) src: [u8; 16],
    pub(super) dst: [u8; 16],
    pub(super) src_port: u16,
    pub(super) dst_port: u16,
    pub(super) family: u16,
    pub(super) protocol: u8,
    pub(super) kind: PacketKind,
}

/// The packet in a buffer; `None`: not one that a job cares for, or a reset of what was open. The base must be a pointer the verifier knows.
#[inline(always)]
pub(super) fn packet(skb: *const u8) -> Option<Packet> {
    let head = load!(*const u8, skb, skb_head);
    let network = head.wrapping_add(load!(u16, skb, skb_network_header) as usize);
    let mut packet = Packet {
        src: [0; 16],
        dst: [0; 16],
        src_port: 0,
        dst_port: 0,
        family: 0,
        protocol: 0,
        kind: PacketKind::Other,
    };
    // The version is more reliable than skb->protocol, which is 0 on some output paths.
    // SAFETY: the helper checks the address.
    let version: u8 = unsafe { bpf_probe_read_kernel(network) }.ok()?;
    let transport = match version >> 4 {
        4 => {
            // SAFETY: the helper checks the address.
            let header: [u8; 20] = unsafe { bpf_probe_read_kernel(network.cast()) }.ok()?;
            packet.family = AF_INET;
            packet.protocol = header[9];
            packet.src[..4].copy_from_slice(&header[12..16]);
            packet.dst[..4].copy_from_slice(&header[16..20]);
            let later_fragment = u16::from_be_bytes([header[6], header[7]]) & FRAGMENT_OFFSET != 0;
            if later_fragment {
                return wanted(packet.protocol).then_some(packet);
            }
            network.wrapping_add(((header[0] & 15) as usize) << 2)
        }
        6 => {
            // SAFETY: the helper checks the address.
            let header: [u8; 40] = unsafe { bpf_probe_read_kernel(network.cast()) }.ok()?;
            packet.family = AF_INET6;
            packet.protocol = header[6];
            packet.src.copy_from_slice(&header[8..24]);
            packet.dst.copy_from_slice(&header[24..40]);
            network.wrapping_add(40)
        }
        _ => return None,
    };
    if !wanted(packet.protocol) {
        return None;
    }
    // SAFETY: the helper checks the address.
    let ports: [u8; 4] = unsafe { bpf_probe_read_kernel(transport.cast()) }.ok()?;
    packet.src_port = u16::from_be_bytes([ports[0], ports[1]]);
    packet.dst_port = u16::from_be_bytes([ports[2], ports[3]]);
    packet.kind = if packet.protocol == TCP {
        // SAFETY: the helper checks the address.
        let flags: u8 = unsafe { bpf_probe_read_kernel(transport.wrapping_add(13)) }.unwrap_or(0);
        if flags & RST != 0 && !refuses(transport, flags) {
            return None;
        }
        segment(flags)
    } else if packet.src_port < FIRST_USER_PORT && packet.dst_port >= FIRST_USER_PORT {
        PacketKind::Answer
    } else {
        PacketKind::Opening
    };
    Some(packet)
}

#[inline(always)]
fn wanted(protocol: u8) -> bool {
    protocol == TCP || protocol == UDP || protocol == SCTP
}

/// Whether a reset answers a SYN: it acknowledges, from sequence number 0 (RFC 9293, 3.5.2). Any other ends what was open,
/// as the kernel of a dead process does; a packet filter that drops that one (kube-proxy's does, as invalid) keeps nobody
/// from anything.
#[inline(always)]
fn refuses(transport: *const u8, flags: u8) -> bool {
    // SAFETY: the helper checks the address.
    let sequence: u32 = unsafe { bpf_probe_read_kernel(transport.wrapping_add(4).cast()) }.unwrap_or(0);
    flags & ACK != 0 && sequence == 0
}

#[inline(always)]
fn segment(flags: u8) -> PacketKind {
    if flags & (SYN | ACK) == SYN {
        PacketKind::Opening
    } else if flags & RST != 0 || flags & SYN != 0 {
        PacketKind::Answer
    } else {
        PacketKind::Other
    }
}
