//! A ring of events with Cilium's rules: a reader has a position; what was overwritten before it came there is told as one
//! lost event each.

use std::collections::VecDeque;

use firedoor_proto::observer::GetFlowsResponse;

/// The newest events.
pub(crate) struct Ring {
    events: VecDeque<GetFlowsResponse>,
    /// Position of the first of them.
    first: u64,
    capacity: usize,
}

/// What a reader finds.
pub(crate) enum Read {
    Event(Box<GetFlowsResponse>),
    /// It was overwritten.
    Overtaken,
    /// It was not written yet.
    Nothing,
}

impl Ring {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { events: VecDeque::new(), first: 0, capacity }
    }

    pub(crate) fn write(&mut self, event: GetFlowsResponse) {
        if self.events.len() == self.capacity {
            self.events.pop_front();
            self.first += 1;
        }
        self.events.push_back(event);
    }

    pub(crate) fn read(&self, position: u64) -> Read {
        match position.checked_sub(self.first) {
            None => Read::Overtaken,
            Some(offset) => match self.events.get(usize::try_from(offset).unwrap_or(usize::MAX)) {
                Some(event) => Read::Event(Box::new(event.clone())),
                None => Read::Nothing,
            },
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    pub(crate) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    pub(crate) fn len(&self) -> u64 {
        self.events.len() as u64
    }

    /// Goes back from the end while `more` says so of the event before. Gives the position reached.
    pub(crate) fn rewind(&self, mut more: impl FnMut(&GetFlowsResponse) -> bool) -> u64 {
        let kept = self.events.iter().rev().take_while(|event| more(event)).count();
        self.end() - kept as u64
    }
}
