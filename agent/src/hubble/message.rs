//! Hubble's messages as gRPC carries them. Enters: the bytes of a `GetFlowsResponse`; leaves: an observation that
//! borrows from them, or why there is none. Only the fields that matter are read, the rest is stepped over; nothing is
//! allocated but the list of policies of an explicit deny. A field that comes twice is merged as protobuf defines.
//! Must not know jobs or connections.

mod flow;

use firedoor_core::observation::{Loss, Observation, SourceKind};
use firedoor_core::time::Timestamp;

use flow::Parts;

use super::convert::{Unusable, check_node};
use super::values::{self, NodeState};
use super::wire::{BYTES, Damage, Fields, NUMBER};

impl From<Damage> for Unusable {
    fn from(Damage(what): Damage) -> Self {
        Self::Wire(what)
    }
}

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Kind {
    /// A flow.
    Flow,
    /// Events that will never be told.
    Lost,
    /// A relay's news about its nodes.
    NodeStatus,
    /// Something else, or nothing.
    #[default]
    Other,
}

/// What is written around the event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Envelope<'a> {
    /// What is in it.
    pub kind: Kind,
    /// The event's own bytes; the last ones, should there be several.
    pub body: &'a [u8],
    /// The node that tells; not checked to be text.
    pub node: &'a [u8],
    /// When.
    pub time: Option<Timestamp>,
}

/// Reads only what is written around the event.
///
/// # Errors
/// When the bytes are no message.
pub fn envelope(bytes: &[u8]) -> Result<Envelope<'_>, Unusable> {
    let (mut fields, mut envelope, mut time) = (Fields::of(bytes), Envelope::default(), Time::default());
    while let Some((field, kind)) = fields.next()? {
        match (field, kind) {
            (1, BYTES) => (envelope.kind, envelope.body) = (Kind::Flow, fields.bytes()?),
            (2, BYTES) => (envelope.kind, envelope.body) = (Kind::NodeStatus, fields.bytes()?),
            (3, BYTES) => (envelope.kind, envelope.body) = (Kind::Lost, fields.bytes()?),
            (1000, BYTES) => envelope.node = fields.bytes()?,
            (1001, BYTES) => time.read(fields.bytes()?)?,
            _ => fields.skip(field, kind)?,
        }
    }
    check_node(envelope.node)?;
    envelope.time = time.stamp();
    Ok(envelope)
}

/// A relay's news about nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeStatus<'a> {
    /// What became of them.
    pub state: NodeState,
    /// The nodes.
    pub nodes: Vec<&'a str>,
}

/// Events that will never be told, as the message has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    /// Where they were lost, in Hubble's words; empty when not told.
    pub cause: &'static str,
    /// How many.
    pub count: u64,
}

impl Default for NodeStatus<'_> {
    fn default() -> Self {
        Self { state: NodeState::Unknown, nodes: Vec::new() }
    }
}

impl<'a> NodeStatus<'a> {
    /// Reads a `relay.NodeStatusEvent` into it.
    ///
    /// # Errors
    /// When the bytes are no message.
    pub fn read(&mut self, body: &'a [u8]) -> Result<(), Unusable> {
        let mut fields = Fields::of(body);
        while let Some((field, kind)) = fields.next()? {
            match (field, kind) {
                (1, NUMBER) => self.state = values::node_state(fields.int32()?.into()),
                (2, BYTES) => {
                    let node = fields.text()?;
                    check_node(node.as_bytes())?;
                    self.nodes.push(node);
                }
                _ => fields.skip(field, kind)?,
            }
        }
        Ok(())
    }
}

impl Lost {
    /// Reads a `flow.LostEvent` into it.
    ///
    /// # Errors
    /// When the bytes are no message.
    pub fn read(&mut self, body: &[u8]) -> Result<(), Unusable> {
        let mut fields = Fields::of(body);
        while let Some((field, kind)) = fields.next()? {
            match (field, kind) {
                (1, NUMBER) => self.cause = values::lost_cause(fields.int32()?.into()),
                (2, NUMBER) => self.count = fields.number()?,
                _ => fields.skip(field, kind)?,
            }
        }
        Ok(())
    }
}

/// The observation in a message; `None`: it holds none.
///
/// # Errors
/// Why the message is unusable.
pub fn observation(bytes: &[u8]) -> Result<Option<Observation<'_>>, Unusable> {
    let (mut fields, mut outer) = (Fields::of(bytes), Outer::default());
    let (mut kind, mut parts) = (Kind::Other, Parts::default());
    let (mut status, mut lost) = (NodeStatus::default(), Lost::default());
    while let Some((field, wire)) = fields.next()? {
        // One of another kind replaces what came before; one of the same kind adds to it.
        let next = match (field, wire) {
            (1, BYTES) => Kind::Flow,
            (2, BYTES) => Kind::NodeStatus,
            (3, BYTES) => Kind::Lost,
            (1000, BYTES) => {
                outer.node = fields.bytes()?;
                continue;
            }
            (1001, BYTES) => {
                outer.merge_time(fields.bytes()?)?;
                continue;
            }
            _ => {
                fields.skip(field, wire)?;
                continue;
            }
        };
        if kind != next && kind != Kind::Other {
            (parts, status, lost) = (Parts::default(), NodeStatus::default(), Lost::default());
        }
        kind = next;
        match kind {
            Kind::Flow => parts.read(fields.bytes()?)?,
            Kind::NodeStatus => status.read(fields.bytes()?)?,
            Kind::Lost => lost.read(fields.bytes()?)?,
            Kind::Other => {}
        }
    }
    match kind {
        Kind::Flow => Ok(Some(Observation::Flow(parts.flow(outer)?))),
        Kind::Lost => {
            let (node, at) = (outer.node()?, outer.time()?);
            check_node(outer.node)?;
            let Lost { cause, count } = lost;
            let observer = (!node.is_empty()).then_some(node);
            let loss = Loss { at, observer, source: SourceKind::Hubble, cause, count };
            Ok(Some(Observation::Lost(loss)))
        }
        Kind::NodeStatus => {
            let at = outer.time()?.unwrap_or(Timestamp::MIN);
            Ok((status.state == NodeState::Blind).then_some(Observation::Blind { at, nodes: status.nodes }))
        }
        Kind::Other => Ok(None),
    }
}

/// What is written around an event. A flow says the same itself: this is looked at only where it does not.
#[derive(Clone, Copy, Default)]
struct Outer<'a> {
    node: &'a [u8],
    time: Option<&'a [u8]>,
    /// What earlier occurrences said.
    merged: Time,
}

impl<'a> Outer<'a> {
    fn merge_time(&mut self, bytes: &'a [u8]) -> Result<(), Damage> {
        if let Some(before) = self.time.replace(bytes) {
            self.merged.read(before)?;
        }
        Ok(())
    }

    fn node(&self) -> Result<&'a str, Damage> {
        std::str::from_utf8(self.node).map_err(|_| Damage("the node's name is not UTF-8"))
    }

    fn time(&self) -> Result<Option<Timestamp>, Damage> {
        let mut time = self.merged;
        if let Some(bytes) = self.time {
            time.read(bytes)?;
        }
        Ok(time.stamp())
    }
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, Default)]
struct Time {
    told: bool,
    seconds: i64,
    nanos: i32,
}

impl Time {
    fn read(&mut self, bytes: &[u8]) -> Result<(), Damage> {
        self.told = true;
        let mut fields = Fields::of(bytes);
        while let Some((field, kind)) = fields.next()? {
            match (field, kind) {
                (1, NUMBER) => self.seconds = fields.number()?.cast_signed(),
                (2, NUMBER) => self.nanos = fields.int32()?,
                _ => fields.skip(field, kind)?,
            }
        }
        Ok(())
    }

    /// `None`: not told, or not a time between 1970 and 2554.
    fn stamp(self) -> Option<Timestamp> {
        let seconds = u64::try_from(self.seconds).ok().filter(|_| self.told)?;
        let nanos = u64::try_from(self.nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
        Some(Timestamp::from_nanos(seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?))
    }
}
