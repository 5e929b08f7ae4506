//! Messages on their way from the network to the observer. Enters: frames as they were received; leaves: observations
//! that borrow from them, decoded only when they are asked for. Nothing is copied unless a message spans frames. Must not
//! know connections.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use firedoor_core::observation::{Loss, Observation, SourceKind};
use firedoor_core::time::Timestamp;

use super::interest::Asked;
use crate::hubble::convert::Unusable;
use crate::hubble::message;

/// What precedes each message on a gRPC stream: whether it is compressed, and its length.
const HEADER: usize = 5;

/// Events that will never be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Lost {
    pub(super) node: String,
    pub(super) cause: &'static str,
    pub(super) at: Option<Timestamp>,
    pub(super) count: u64,
}

enum Item {
    /// A message: which frame, and where in it.
    Message {
        frame: u32,
        start: u32,
        length: u32,
    },
    Lost(Box<Lost>),
    /// A message that was not kept.
    Refused(&'static str),
}

/// What was received, in order.
#[derive(Default)]
pub struct Batch {
    frames: Vec<Bytes>,
    items: Vec<Item>,
    bytes: usize,
    asked: Arc<Asked>,
    /// Messages that were received before, and those from before anybody asked.
    pub(super) again: u64,
    pub(super) history: u64,
}

/// What of a batch was no observation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PassedOver {
    /// Flows that nobody asked for: the server's filters are coarser than the question.
    pub unasked: u64,
    /// Messages that hold nothing to observe.
    pub other: u64,
    /// Messages that the server sent once more after a break.
    pub again: u64,
    /// Messages from before anybody asked.
    pub history: u64,
}

impl Batch {
    pub(super) fn new(asked: Arc<Asked>) -> Self {
        Self { asked, ..Self::default() }
    }

    /// Messages and losses in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes of the messages in it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Decodes what is in it, in order: each observation, or why a message is none.
    pub fn observations(&self, mut each: impl FnMut(Result<Observation<'_>, Unusable>)) -> PassedOver {
        let mut passed = PassedOver { again: self.again, history: self.history, ..PassedOver::default() };
        for item in &self.items {
            match item {
                Item::Message { frame, start, length } => {
                    let bytes = self.message(*frame, *start, *length);
                    match message::observation(bytes) {
                        Ok(Some(Observation::Flow(flow))) if !self.asked.for_flow(&flow) => {
                            passed.unasked += 1
                        }
                        Ok(Some(observation)) => each(Ok(observation)),
                        Ok(None) => passed.other += 1,
                        Err(why) => each(Err(why)),
                    }
                }
                Item::Lost(lost) => each(Ok(Observation::Lost(Loss {
                    at: lost.at,
                    observer: (!lost.node.is_empty()).then_some(lost.node.as_str()),
                    source: SourceKind::Hubble,
                    cause: lost.cause,
                    count: lost.count,
                }))),
                Item::Refused(why) => each(Err(Unusable::Wire(why))),
            }
        }
        passed
    }

    /// The messages as they were received, for a recording.
    pub fn messages(&self) -> impl Iterator<Item = &[u8]> {
        self.items.iter().filter_map(|item| match item {
            Item::Message { frame, start, length } => Some(self.message(*frame, *start, *length)),
            _ => None,
        })
    }

    fn message(&self, frame: u32, start: u32, length: u32) -> &[u8] {
        let frame = self.frames.get(frame as usize).map_or(&[][..], |frame| frame);
        frame.get(start as usize..(start + length) as usize).unwrap_or_default()
    }

    /// Whether it is time to pass it on.
    pub(super) fn is_full(&self, messages: usize, bytes: usize) -> bool {
        self.items.len() >= messages || self.bytes >= bytes
    }

    /// Adds losses to those of the same kind, node and second, or as new ones: floods come as very many messages of one event.
    pub(super) fn lose(&mut self, lost: Lost) {
        let second = |at: Option<Timestamp>| at.map(|at| at.nanos() / 1_000_000_000);
        let alike = |item: &&mut Item| {
            matches!(item, Item::Lost(other) if other.cause == lost.cause && other.node == lost.node
                && second(other.at) == second(lost.at))
        };
        // Only the last few: others lie between them in time.
        if let Some(Item::Lost(other)) = self.items.iter_mut().rev().take(8).find(alike) {
            other.count = other.count.saturating_add(lost.count);
            other.at = other.at.max(lost.at);
        } else {
            self.items.push(Item::Lost(Box::new(lost)));
        }
    }
}

/// Cuts a stream into messages.
pub(super) struct Cutter {
    limit: usize,
    /// A message that began in an earlier frame.
    partial: BytesMut,
    /// Bytes still to come of a message that is not kept.
    skip: usize,
}

impl Cutter {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit: limit.min(1 << 30), partial: BytesMut::new(), skip: 0 }
    }

    /// Adds to the batch the messages that a frame completes, those for which `keep` says so.
    pub(super) fn cut(
        &mut self,
        mut frame: Bytes,
        batch: &mut Batch,
        mut keep: impl FnMut(&[u8], &mut Batch) -> bool,
    ) {
        if !self.stitch(&mut frame, batch, &mut keep) || frame.is_empty() {
            return;
        }
        let Ok(index) = u32::try_from(batch.frames.len()) else { return };
        let (mut at, mut kept) = (0, false);
        while let Some(header) = frame.get(at..at + HEADER) {
            let Some(length) = self.length(header, batch) else {
                let passed = self.skip.min(frame.len() - at - HEADER);
                self.skip -= passed;
                at += HEADER + passed;
                continue;
            };
            let Some(bytes) = frame.get(at + HEADER..at + HEADER + length) else { break };
            at += HEADER;
            if keep(bytes, batch) {
                kept = true;
                batch.add(index, at..at + length);
            }
            at += length;
        }
        if at < frame.len() {
            self.partial.extend_from_slice(frame.get(at..).unwrap_or_default());
        }
        if kept {
            batch.frames.push(frame);
        }
    }

    /// Continues the message that began in an earlier frame; `false`: it is still not complete.
    fn stitch(
        &mut self,
        frame: &mut Bytes,
        batch: &mut Batch,
        keep: &mut impl FnMut(&[u8], &mut Batch) -> bool,
    ) -> bool {
        if self.skip > 0 {
            let passed = self.skip.min(frame.len());
            let _ = frame.split_to(passed);
            self.skip -= passed;
            return self.skip == 0;
        }
        if self.partial.is_empty() {
            return true;
        }
        let missing = HEADER.saturating_sub(self.partial.len()).min(frame.len());
        self.partial.extend_from_slice(&frame.split_to(missing));
        let Some(header) = self.partial.get(..HEADER).and_then(|h| <[u8; HEADER]>::try_from(h).ok()) else {
            return false;
        };
        let Some(length) = self.length(&header, batch) else {
            // The part of it that came already need not be skipped.
            self.skip = self.skip.saturating_sub(self.partial.len() - HEADER);
            self.partial.clear();
            return self.stitch(frame, batch, keep);
        };
        let missing = (HEADER + length).saturating_sub(self.partial.len()).min(frame.len());
        self.partial.extend_from_slice(&frame.split_to(missing));
        if self.partial.len() < HEADER + length {
            return false;
        }
        let whole = self.partial.split().freeze();
        let bytes = whole.get(HEADER..).unwrap_or_default();
        if let Ok(index) = u32::try_from(batch.frames.len())
            && keep(bytes, batch)
        {
            batch.add(index, HEADER..whole.len());
            batch.frames.push(whole);
        }
        true
    }

    /// The length in a header; `None`: the message is not kept, and is to be skipped.
    fn length(&mut self, header: &[u8], batch: &mut Batch) -> Option<usize> {
        let [compressed, length @ ..] = header else { return Some(0) };
        let length = <[u8; 4]>::try_from(length).map_or(0, u32::from_be_bytes) as usize;
        let refused = match compressed {
            0 if length <= self.limit => return Some(length),
            0 => "the message is too long",
            _ => "the message is compressed, which nobody asked for",
        };
        batch.items.push(Item::Refused(refused));
        self.skip = length;
        None
    }
}

impl Batch {
    fn add(&mut self, frame: u32, place: Range<usize>) {
        let length = place.len();
        let (Ok(start), Ok(long)) = (u32::try_from(place.start), u32::try_from(length)) else { return };
        self.items.push(Item::Message { frame, start, length: long });
        self.bytes += length;
    }
}
