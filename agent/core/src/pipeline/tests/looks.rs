//! A look at a live pipeline says what a pipeline that ends there says, whatever came until then.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::observation::{Direction, EventKind, Loss, TcpFlags, Verdict};

/// An observation in small: what varies, of few values each, so that collisions are common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// Seconds since the beginning; from [`FAR`] on in steps of hours, and then of years.
    when: u64,
    node: u8,
    src: u8,
    dst: u8,
    what: u8,
}

const FAR: u64 = 150;

impl Told {
    fn at(self) -> Timestamp {
        match self.when.checked_sub(FAR) {
            None => at(self.when),
            Some(hours @ 0..8) => at(2 * 3600 * hours),
            Some(years) => at(400 * 86_400 * years),
        }
    }

    fn end(pod: u8, port: u16, uid: bool) -> End<'static> {
        // The third is nobody's.
        let (ip, of) =
            [("10.2.1.5", "uid-mid-worker-0"), ("10.2.2.5", "uid-mid-worker-1"), ("10.9.9.9", "uid-none")]
                [usize::from(pod % 3)];
        let end = End::at(ip.parse().expect("an address"), port);
        End { uid: Some(of).filter(|_| uid), ..end }
    }

    pub(super) fn enter(self, pipeline: &mut Pipeline) {
        let observer = ["n1", "n2", ""][usize::from(self.node % 3)];
        let opening = 40_000 + u16::from(self.what / 16);
        let carried = Carried {
            sent: 1_000_000,
            received: 10,
            retransmitted: 1,
            rtt: Some(Duration::from_micros(700)),
            min_rtt: None,
        };
        let step = match self.what % 16 {
            0..3 => SocketStep::Opening,
            3..5 => SocketStep::Established,
            5 => SocketStep::Refused,
            6 => SocketStep::Carried(carried),
            7 => SocketStep::Closed(carried),
            8..12 => return self.drops(pipeline, observer),
            12..14 => return self.flow(pipeline, observer, opening),
            14 => return pipeline.reject(SourceKind::Ebpf),
            _ => {
                let (at, source) = (Some(self.at()).filter(|_| self.src == 0), SourceKind::Ebpf);
                let loss = Loss { at, observer: Some(observer), source, cause: "ring", count: 3 };
                return pipeline.observe(Observation::Lost(loss));
            }
        };
        pipeline.observe(Observation::Socket(SocketEvent {
            at: self.at(),
            observer,
            source: SourceKind::Ebpf,
            local: Self::end(self.src, opening, true),
            remote: Self::end(self.dst, 29500, false),
            opener: Some(Opener::Local),
            step,
        }));
    }

    fn drops(self, pipeline: &mut Pipeline, observer: &str) {
        pipeline.observe(Observation::Drops(Drops {
            first: self.at(),
            last: self.at(),
            observer,
            source: SourceKind::Ebpf,
            protocol: crate::facts::Protocol::Tcp,
            src: Self::end(self.src, 0, false),
            dst: Self::end(self.dst, 29500, false),
            what: DroppedPacket::Opening,
            reason: crate::drop_reason::DropReason::from_kernel_name("NETFILTER_DROP"),
            direction: None,
            packets: 1 + u64::from(self.what / 16),
            attempts: 1,
        }));
    }

    fn flow(self, pipeline: &mut Pipeline, observer: &str, port: u16) {
        let denied = Verdict::Dropped(crate::drop_reason::DropReason::POLICY_DENIED);
        pipeline.observe(Observation::Flow(Flow {
            at: self.at(),
            observer,
            source: SourceKind::Hubble,
            kind: EventKind::Drop,
            sub_kind: 0,
            verdict: if self.what.is_multiple_of(2) { denied } else { Verdict::Forwarded },
            protocol: crate::facts::Protocol::Tcp,
            src: Self::end(self.src, port, false),
            dst: Self::end(self.dst, 29500, false),
            flags: TcpFlags { syn: true, ..TcpFlags::default() },
            is_reply: None,
            direction: Some(Direction::Egress),
            state: None,
            denied_by: Vec::new(),
        }));
    }
}

pub(super) fn told() -> impl Strategy<Value = Told> {
    // Mostly near each other, sometimes far away.
    let when = prop_oneof![6 => 0..5_u64, 4 => 0..FAR, 1 => FAR..FAR + 12];
    (when, 0..3_u8, 0..3_u8, 0..3_u8, any::<u8>()).prop_map(|(when, node, src, dst, what)| Told {
        when,
        node,
        src,
        dst,
        what,
    })
}

pub(super) fn holds(report: &Report) -> bool {
    let c = &report.coverage;
    c.received == c.attributed + c.not_a_job + c.rejected + c.late + c.duplicate
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn a_look_is_what_an_end_would_be(events in proptest::collection::vec(told(), 0..40)) {
        let mut live = pipeline(&[("mid", 2)]);
        for k in 0..=events.len() {
            let look = live.report();
            prop_assert!(holds(&look), "{:?}", look.coverage);
            let mut until = pipeline(&[("mid", 2)]);
            events.iter().take(k).for_each(|event| event.enter(&mut until));
            prop_assert_eq!(look, until.finish());
            if let Some(event) = events.get(k) {
                event.enter(&mut live);
            }
        }
    }
}

#[test]
fn what_waits_for_a_second_witness_is_seen_at_once() {
    let mut live = pipeline(&[("mid", 2)]);
    (0..4).for_each(|k| denied(&mut live, 0, 40_000 + k));
    let look = live.report();
    let coverage = &look.coverage;
    let counts = (coverage.received, coverage.attributed, coverage.duplicate);
    assert_eq!(counts, (8, 5, 3), "the drops of one second look alike");
    assert!(holds(&look));
}
