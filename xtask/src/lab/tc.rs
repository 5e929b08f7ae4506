//! Denying traffic of a pod by a program on its interface, as Cilium and AWS do. Enters: the interface at the node's
//! end, and destinations; leaves: a classic BPF program there that returns `TC_ACT_SHOT` for TCP to any of them. The
//! kernel runs it through cls_bpf in direct-action mode, the way of the big ones.

use std::net::IpAddr;

use anyhow::{Context, Result};
use serde_json::Value;

use super::host::{run, within};
use super::network::enter;

/// An instruction of classic BPF: code, jump if true, jump if false, operand.
type Instruction = (u16, usize, usize, u32);

// linux/bpf_common.h: class and mode of each code used here.
const LOAD_HALF: u16 = 0x28;
const LOAD_WORD: u16 = 0x20;
const LOAD_BYTE: u16 = 0x30;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
// linux/pkt_cls.h.
const TC_ACT_SHOT: u32 = 2;
const TC_ACT_UNSPEC: u32 = u32::MAX;
const TCP: u32 = 6;

/// Denies TCP from the pod behind `interface` to `destinations`.
pub(super) fn deny(node: &str, interface: &str, destinations: &[IpAddr]) -> Result<()> {
    let netns = enter(node);
    let program = text(&program(destinations));
    run(&within(&netns, &["tc", "qdisc", "add", "dev", interface, "clsact"]))?;
    let filter =
        ["tc", "filter", "add", "dev", interface, "ingress", "bpf", "direct-action", "bytecode", &program];
    run(&within(&netns, &filter)).map(drop).context("this kernel has no cls_bpf?")
}

/// Denies nothing any more, and says how many packets were shot. The program goes first, so that the count stands
/// still when it is read.
pub(super) fn admit(node: &str, interface: &str) -> Result<u64> {
    let netns = enter(node);
    run(&within(&netns, &["tc", "filter", "del", "dev", interface, "ingress"]))?;
    let shot = drops(node, interface)?;
    run(&within(&netns, &["tc", "qdisc", "del", "dev", interface, "clsact"]))?;
    Ok(shot)
}

/// Packets that programs on the interface shot.
fn drops(node: &str, interface: &str) -> Result<u64> {
    let text = run(&within(&enter(node), &["tc", "-s", "-j", "qdisc", "show", "dev", interface, "clsact"]))?;
    let listed: Value = serde_json::from_str(&text).context("tc printed no JSON")?;
    let clsact = listed
        .as_array()
        .into_iter()
        .flatten()
        .find(|qdisc| qdisc.get("kind").and_then(Value::as_str) == Some("clsact"));
    clsact.and_then(|qdisc| qdisc.get("drops")).and_then(Value::as_u64).context("tc printed no drops")
}

/// For each destination: is it this protocol, this address, TCP? Then shoot; else the next.
fn program(destinations: &[IpAddr]) -> Vec<Instruction> {
    let mut program = Vec::new();
    for destination in destinations {
        // Offsets from the Ethernet header: of the next protocol, and of the destination address.
        let (ethertype, protocol, at, words): (u32, u32, u32, Vec<u32>) = match destination {
            IpAddr::V4(ip) => (0x0800, 14 + 9, 14 + 16, vec![u32::from(*ip)]),
            IpAddr::V6(ip) => {
                let bits = u128::from(*ip);
                let word = |shift: u32| (bits >> shift & u128::from(u32::MAX)) as u32;
                (0x86dd, 14 + 6, 14 + 24, [96, 64, 32, 0].map(word).to_vec())
            }
        };
        let mut tests = vec![(LOAD_HALF, 12, ethertype), (LOAD_BYTE, protocol, TCP)];
        tests.extend(words.into_iter().zip((at..).step_by(4)).map(|(word, at)| (LOAD_WORD, at, word)));
        let length = 2 * tests.len();
        for (number, (load, offset, value)) in tests.into_iter().enumerate() {
            program.push((load, 0, 0, offset));
            // Behind the return that ends this destination's tests.
            let behind = length - 2 * number - 1;
            program.push((JUMP_EQUAL, 0, behind, value));
        }
        program.push((RETURN, 0, 0, TC_ACT_SHOT));
    }
    program.push((RETURN, 0, 0, TC_ACT_UNSPEC));
    program
}

/// As `tc` reads it.
fn text(program: &[Instruction]) -> String {
    let lines = program.iter().map(|(code, yes, no, operand)| format!("{code} {yes} {no} {operand}"));
    std::iter::once(program.len().to_string()).chain(lines).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program on a packet, as the kernel does.
    fn execute(program: &[Instruction], packet: &[u8]) -> u32 {
        let (mut at, mut register) = (0, 0);
        loop {
            let (code, yes, no, operand) = program[at];
            at += 1;
            let offset = operand as usize;
            match code {
                RETURN => return operand,
                JUMP_EQUAL => at += if register == operand { yes } else { no },
                LOAD_BYTE => register = u32::from(packet[offset]),
                LOAD_HALF => register = u32::from(u16::from_be_bytes([packet[offset], packet[offset + 1]])),
                _ => register = u32::from_be_bytes(packet[offset..offset + 4].try_into().unwrap()),
            }
        }
    }

    fn packet(to: IpAddr, protocol: u8) -> Vec<u8> {
        let mut packet = vec![0; 80];
        match to {
            IpAddr::V4(ip) => {
                packet[12..14].copy_from_slice(&[8, 0]);
                packet[23] = protocol;
                packet[30..34].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                packet[12..14].copy_from_slice(&[0x86, 0xdd]);
                packet[20] = protocol;
                packet[38..54].copy_from_slice(&ip.octets());
            }
        }
        packet
    }

    #[test]
    fn only_tcp_to_the_denied_is_shot() {
        let denied: Vec<IpAddr> =
            ["10.60.2.10", "fd00:60:2::10", "10.60.2.13"].map(|ip| ip.parse().unwrap()).into();
        let program = program(&denied);
        for ip in &denied {
            assert_eq!(execute(&program, &packet(*ip, 6)), TC_ACT_SHOT, "{ip}");
            assert_eq!(execute(&program, &packet(*ip, 17)), TC_ACT_UNSPEC, "{ip}");
        }
        for other in ["10.60.2.11", "fd00:60:2::11"] {
            assert_eq!(execute(&program, &packet(other.parse().unwrap(), 6)), TC_ACT_UNSPEC, "{other}");
        }
    }
}
