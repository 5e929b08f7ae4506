//! The flow in a message. Enters: the bytes of a `flow.Flow`; leaves: the flow that is observed.

use std::net::{IpAddr, Ipv4Addr};

use firedoor_core::drop_reason::DropReason;
use firedoor_core::facts::Protocol;
use firedoor_core::observation::{Direction, End, Flow, NamedPolicy, Reserved, SourceKind, TcpFlags};

use super::super::convert::{Unusable, check_names, is_policy};
use super::super::values;
use super::super::wire::{BYTES, Damage, Fields, NUMBER};
use super::{Outer, Time};

/// Policies of one flow beyond this many are not believed.
const MAX_POLICIES: usize = 64;

#[derive(Clone, Copy, Default)]
struct Endpoint<'a> {
    identity: u32,
    namespace: &'a str,
    pod: &'a str,
}

impl<'a> Endpoint<'a> {
    fn read(&mut self, bytes: &'a [u8]) -> Result<(), Damage> {
        let mut fields = Fields::of(bytes);
        while let Some((field, kind)) = fields.next()? {
            match (field, kind) {
                (2, NUMBER) => self.identity = fields.uint32()?,
                (3, BYTES) => self.namespace = fields.text()?,
                (5, BYTES) => self.pod = fields.text()?,
                _ => fields.skip(field, kind)?,
            }
        }
        Ok(())
    }

    fn end(&self, ip: Option<IpAddr>, port: u16) -> End<'a> {
        let pod = (!self.pod.is_empty()).then_some((self.namespace, self.pod));
        End { ip, port, pod, uid: None, reserved: Reserved::from_identity(self.identity) }
    }
}

/// Ports and flags of the transport that was told last; field numbers of `flow.Layer4`.
#[derive(Clone, Copy, Default)]
struct Layer4 {
    transport: u32,
    source: u32,
    destination: u32,
    flags: TcpFlags,
}

impl Layer4 {
    fn read(&mut self, bytes: &[u8]) -> Result<(), Damage> {
        let mut fields = Fields::of(bytes);
        while let Some((field, kind)) = fields.next()? {
            if kind != BYTES || !(1..=5).contains(&field) {
                fields.skip(field, kind)?;
                continue;
            }
            if self.transport != field {
                *self = Self { transport: field, ..Self::default() };
            }
            self.ports(fields.bytes()?)?;
        }
        Ok(())
    }

    fn ports(&mut self, bytes: &[u8]) -> Result<(), Damage> {
        let mut fields = Fields::of(bytes);
        while let Some((field, kind)) = fields.next()? {
            match (field, kind) {
                (1, NUMBER) => self.source = fields.uint32()?,
                (2, NUMBER) => self.destination = fields.uint32()?,
                (3, BYTES) if self.transport == 1 => self.flags(fields.bytes()?)?,
                _ => fields.skip(field, kind)?,
            }
        }
        Ok(())
    }

    fn flags(&mut self, bytes: &[u8]) -> Result<(), Damage> {
        let mut fields = Fields::of(bytes);
        while let Some((field, kind)) = fields.next()? {
            let flag = match (field, kind) {
                (1, NUMBER) => &mut self.flags.fin,
                (2, NUMBER) => &mut self.flags.syn,
                (3, NUMBER) => &mut self.flags.rst,
                (4, NUMBER) => &mut self.flags.psh,
                (5, NUMBER) => &mut self.flags.ack,
                _ => {
                    fields.skip(field, kind)?;
                    continue;
                }
            };
            *flag = fields.number()? != 0;
        }
        Ok(())
    }

    /// ICMP, VRRP, IGMP, or newer are all one: nothing that opens connections.
    fn told(self) -> Result<(Protocol, u16, u16, TcpFlags), Unusable> {
        let protocol = match self.transport {
            1 => Protocol::Tcp,
            2 => Protocol::Udp,
            5 => Protocol::Sctp,
            _ => return Ok((Protocol::Icmp, 0, 0, TcpFlags::default())),
        };
        let port = |number: u32| u16::try_from(number).map_err(|_| Unusable::Port(number.into()));
        Ok((protocol, port(self.source)?, port(self.destination)?, self.flags))
    }
}

/// The fields of `flow.Flow` that matter, as they are found.
#[derive(Default)]
pub(super) struct Parts<'a> {
    time: Time,
    verdict: i32,
    drop_reason: u32,
    described: i32,
    source_ip: &'a [u8],
    destination_ip: &'a [u8],
    layer4: Layer4,
    source: Endpoint<'a>,
    destination: Endpoint<'a>,
    node: &'a str,
    event: Option<(i32, i32)>,
    reply: bool,
    is_reply: Option<bool>,
    direction: i32,
    trace_reason: i32,
    denied_by: Vec<NamedPolicy<'a>>,
}

impl<'a> Parts<'a> {
    pub(super) fn read(&mut self, bytes: &'a [u8]) -> Result<(), Damage> {
        let mut fields = Fields::of(bytes);
        while let Some((field, kind)) = fields.next()? {
            match (field, kind) {
                (1, BYTES) => self.time.read(fields.bytes()?)?,
                (2, NUMBER) => self.verdict = fields.int32()?,
                (3, NUMBER) => self.drop_reason = fields.uint32()?,
                (5, BYTES) => self.addresses(fields.bytes()?)?,
                (6, BYTES) => self.layer4.read(fields.bytes()?)?,
                (8, BYTES) => self.source.read(fields.bytes()?)?,
                (9, BYTES) => self.destination.read(fields.bytes()?)?,
                (11, BYTES) => self.node = fields.text()?,
                (16, NUMBER) => self.reply = fields.number()? != 0,
                (19, BYTES) => self.event(fields.bytes()?)?,
                (22, NUMBER) => self.direction = fields.int32()?,
                (25, NUMBER) => self.described = fields.int32()?,
                (26, BYTES) => self.answers(fields.bytes()?)?,
                (36, NUMBER) => self.trace_reason = fields.int32()?,
                (21_004, BYTES) => self.denied(Direction::Egress, fields.bytes()?)?,
                (21_005, BYTES) => self.denied(Direction::Ingress, fields.bytes()?)?,
                _ => fields.skip(field, kind)?,
            }
        }
        Ok(())
    }

    fn addresses(&mut self, bytes: &'a [u8]) -> Result<(), Damage> {
        let mut fields = Fields::of(bytes);
        while let Some((field, kind)) = fields.next()? {
            match (field, kind) {
                (1, BYTES) => self.source_ip = fields.bytes()?,
                (2, BYTES) => self.destination_ip = fields.bytes()?,
                _ => fields.skip(field, kind)?,
            }
        }
        Ok(())
    }

    fn event(&mut self, bytes: &[u8]) -> Result<(), Damage> {
        let (mut event, mut sub_type) = self.event.unwrap_or_default();
        let mut fields = Fields::of(bytes);
        while let Some((field, kind)) = fields.next()? {
            match (field, kind) {
                (1, NUMBER) => event = fields.int32()?,
                (2, NUMBER) => sub_type = fields.int32()?,
                _ => fields.skip(field, kind)?,
            }
        }
        self.event = Some((event, sub_type));
        Ok(())
    }

    /// `google.protobuf.BoolValue`: there and empty means false.
    fn answers(&mut self, bytes: &[u8]) -> Result<(), Damage> {
        let mut told = self.is_reply.unwrap_or(false);
        let mut fields = Fields::of(bytes);
        while let Some((field, kind)) = fields.next()? {
            match (field, kind) {
                (1, NUMBER) => told = fields.number()? != 0,
                _ => fields.skip(field, kind)?,
            }
        }
        self.is_reply = Some(told);
        Ok(())
    }

    fn denied(&mut self, direction: Direction, bytes: &'a [u8]) -> Result<(), Damage> {
        let (mut named, mut namespace, mut name, mut derived) = ("", "", "", None);
        let mut fields = Fields::of(bytes);
        while let Some((field, kind)) = fields.next()? {
            match (field, kind) {
                (1, BYTES) => name = fields.text()?,
                (2, BYTES) => namespace = fields.text()?,
                (3, BYTES) if derived.is_none() => derived = values::derived_from(fields.text()?),
                (5, BYTES) => named = fields.text()?,
                _ => fields.skip(field, kind)?,
            }
        }
        let kind = values::policy_kind(named, namespace, derived);
        let policy = NamedPolicy { kind, namespace, name, direction };
        if !is_policy(&policy) || self.denied_by.len() >= MAX_POLICIES {
            return Ok(());
        }
        // Egress comes first, in whatever order the fields were written.
        let place = match direction {
            Direction::Egress => self.denied_by.partition_point(|p| p.direction == Direction::Egress),
            Direction::Ingress => self.denied_by.len(),
        };
        self.denied_by.insert(place, policy);
        Ok(())
    }

    pub(super) fn flow(self, outer: Outer<'a>) -> Result<Flow<'a>, Unusable> {
        let at = match self.time.stamp() {
            Some(at) => at,
            None => outer.time()?.ok_or_else(|| Unusable::Time(String::new()))?,
        };
        let wide = |(kind, sub_type): (i32, i32)| (i64::from(kind), i64::from(sub_type));
        let event = self.event.map(wide);
        let (kind, sub_kind) = values::event_kind(event);
        let (protocol, source_port, destination_port, flags) = self.layer4.told()?;
        let src = self.source.end(address(self.source_ip), source_port);
        let dst = self.destination.end(address(self.destination_ip), destination_port);
        let told = |end: &End<'_>| end.ip.is_some() || end.pod.is_some();
        if !told(&src) && !told(&dst) {
            return Err(Unusable::NoEnds);
        }
        let observer = if self.node.is_empty() { outer.node()? } else { self.node };
        check_names([&src, &dst], observer)?;
        let reason = || {
            let described = u32::try_from(self.described).ok().filter(|code| *code != 0);
            let number = (self.drop_reason != 0).then_some(self.drop_reason);
            values::drop_reason(described.map(DropReason::from_code), number, event)
        };
        Ok(Flow {
            at,
            observer,
            source: SourceKind::Hubble,
            kind,
            sub_kind,
            verdict: values::verdict(self.verdict.into(), reason),
            protocol,
            src,
            dst,
            flags,
            is_reply: values::is_reply(self.is_reply, self.reply),
            direction: values::direction(self.direction.into()),
            state: values::connection_state(self.trace_reason.into()),
            denied_by: self.denied_by,
        })
    }
}

/// An address from its text.
#[inline(always)]
fn address(text: &[u8]) -> Option<IpAddr> {
    ipv4(text).map(IpAddr::V4).or_else(|| other_address(text))
}

#[inline(never)]
fn other_address(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The common form, faster than the standard library's parser and just as strict.
fn ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    let (mut address, mut index, mut value, mut digits) = (0_u32, 0_u32, 0_u32, 0_u8);
    for byte in text {
        match byte {
            b'0'..=b'9' => {
                // No zero in front: it may mean an octal number.
                if digits == 3 || (digits > 0 && value == 0) {
                    return None;
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
            }
            b'.' if digits > 0 && index < 3 && value <= 255 => {
                (address, index, value, digits) = (address << 8 | value, index + 1, 0, 0);
            }
            _ => return None,
        }
    }
    (index == 3 && digits > 0 && value <= 255).then(|| Ipv4Addr::from_bits(address << 8 | value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_standard_library_reads_them() {
        for text in [
            "10.0.0.1",
            "255.255.255.255",
            "256.0.0.1",
            "1.2.3",
            "1.2.3.4.5",
            "01.2.3.4",
            "0.0.0.0",
            "1..2.3",
            "1.2.3.",
            ".1.2.3",
            "1.2.3.4 ",
            "fd00::1",
            "::ffff:10.0.0.1",
            "",
            "x",
            "1000.1.1.1",
            "00.1.1.1",
        ] {
            assert_eq!(address(text.as_bytes()), text.parse().ok(), "{text}");
        }
    }
}
