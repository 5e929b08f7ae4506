//! The mouth: from frames to batches. Enters: what a stream carries; leaves: batches of what is new. Decodes only what is
//! written around an event: whose it is, when, and of which kind.

use std::sync::Arc;
use std::task::{Context, Poll};

use firedoor_core::time::Timestamp;

use super::batch::{self, Batch, Cutter};
use super::call::{Answer, Next};
use super::continuity::{Continuity, Fate};
use super::house::told;
use super::interest::Asked;
use super::settings::HubbleSettings;
use crate::hubble::message::{self, Envelope, Kind, Lost, NodeStatus};
use crate::hubble::values::{HUBBLE_RING_BUFFER, NodeState};

/// How far a batch was filled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Filled {
    /// There may be more.
    Full,
    /// Nothing more is there now.
    Drained,
    /// Nothing more will come.
    Ended(String),
}

/// Nodes that a relay sees, and when it said so.
type Sees = (Option<Timestamp>, Vec<String>);

/// A stream and the batch that is being filled from it.
pub(super) struct Intake {
    answer: Answer,
    cutter: Cutter,
    pub(super) batch: Batch,
    pub(super) sees: Vec<Sees>,
    asked: Arc<Asked>,
    messages: usize,
    bytes: usize,
}

impl Intake {
    pub(super) fn new(answer: Answer, settings: &HubbleSettings, asked: Arc<Asked>) -> Self {
        Self {
            answer,
            cutter: Cutter::new(settings.message_bytes),
            batch: Batch::new(Arc::clone(&asked)),
            sees: Vec::new(),
            asked,
            messages: settings.batch_messages,
            bytes: settings.batch_bytes,
        }
    }

    /// Takes what was filled.
    pub(super) fn take(&mut self) -> Batch {
        std::mem::replace(&mut self.batch, Batch::new(Arc::clone(&self.asked)))
    }

    /// Fills the batch with what is there. Resolves when there is something to pass on.
    pub(super) fn fill(&mut self, context: &mut Context<'_>, continuity: &mut Continuity) -> Poll<Filled> {
        loop {
            let frame = match self.answer.poll(context) {
                Poll::Ready(Next::Frame(frame)) => frame,
                Poll::Ready(Next::End(status)) => return Poll::Ready(Filled::Ended(told(&status))),
                Poll::Pending if self.batch.is_empty() && self.sees.is_empty() => return Poll::Pending,
                Poll::Pending => return Poll::Ready(Filled::Drained),
            };
            let sees = &mut self.sees;
            self.cutter.cut(frame, &mut self.batch, |bytes, batch| admit(bytes, batch, continuity, sees));
            if self.batch.is_full(self.messages, self.bytes) || !self.sees.is_empty() {
                return Poll::Ready(Filled::Full);
            }
        }
    }
}

/// Whether a message goes into the batch as it is.
fn admit(bytes: &[u8], batch: &mut Batch, continuity: &mut Continuity, sees: &mut Vec<Sees>) -> bool {
    // A damaged message is an event, too: it is rejected once, not at every resumption.
    let Envelope { kind, body, node, time } = message::envelope(bytes).unwrap_or_default();
    match kind {
        Kind::NodeStatus => return node_status(body, time, continuity, sees),
        Kind::Lost => {
            let mut lost = Lost::default();
            if lost.read(body).is_err() {
                return true;
            }
            let new = if lost.cause == HUBBLE_RING_BUFFER {
                continuity.overrun(node, lost.count)
            } else {
                passes(bytes, node, time, batch, continuity)
            };
            if new {
                batch.lose(loss(node, lost.cause, time, lost.count));
            }
            return false;
        }
        Kind::Flow | Kind::Other => {}
    }
    passes(bytes, node, time, batch, continuity)
}

/// Whether a message is new.
#[inline]
fn passes(
    bytes: &[u8],
    node: &[u8],
    time: Option<Timestamp>,
    batch: &mut Batch,
    continuity: &mut Continuity,
) -> bool {
    match continuity.take(node, time, continuity.fingerprint(bytes)) {
        Fate::New => return true,
        Fate::NewAfter(count) => {
            batch.lose(loss(node, HUBBLE_RING_BUFFER, time, count));
            return true;
        }
        Fate::Known => batch.again += 1,
        Fate::History => batch.history += 1,
    }
    false
}

fn loss(node: &[u8], cause: &'static str, at: Option<Timestamp>, count: u64) -> batch::Lost {
    batch::Lost { node: String::from_utf8_lossy(node).into_owned(), cause, at, count }
}

fn node_status(
    body: &[u8],
    time: Option<Timestamp>,
    continuity: &mut Continuity,
    sees: &mut Vec<Sees>,
) -> bool {
    let mut status = NodeStatus::default();
    if status.read(body).is_err() {
        return true;
    }
    match status.state {
        NodeState::Seen => sees.push((time, status.nodes.iter().map(|node| (*node).to_owned()).collect())),
        NodeState::Blind => {
            for node in &status.nodes {
                continuity.lost_sight(node);
            }
            return true;
        }
        NodeState::Unknown => {}
    }
    false
}
