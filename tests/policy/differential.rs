//! The property: engine and reference give the same answer to every question about every world. Enters: random worlds;
//! leaves: nothing, or the smallest world and question that the two answer differently, as YAML that can go into the
//! table.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

use crate::engine::Engine;
use crate::reference::selector::end_of;
use crate::reference::{End, Outcome, World, reference, reference_range};
use crate::table::{Given, Question};
use crate::worlds::{self, PORTS};

/// Different worlds a run must see at least.
const WORLDS: u32 = 2_500;
/// Questions a run must ask at least.
const SITUATIONS: usize = 20_000;

/// What is asked of every ordered pair of ends of a world.
#[derive(Clone, Debug)]
struct Probe {
    protocol: &'static str,
    ports: (u16, u16),
}

fn probes() -> impl Strategy<Value = Vec<Probe>> {
    let one = (select(vec!["TCP", "TCP", "TCP", "UDP", "SCTP"]), select(&PORTS[..]))
        .prop_map(|(protocol, port)| Probe { protocol, ports: (port, port) });
    let edges = vec![(79, 80), (80, 81), (443, 444), (9999, 10_001), (39_999, 40_000), (60_999, 61_000)];
    let range = (select(vec!["TCP", "TCP", "UDP"]), select(edges))
        .prop_map(|(protocol, ports)| Probe { protocol, ports });
    (one, range).prop_map(|(one, range)| vec![one, range])
}

/// What the run has seen, to know afterwards that it was worth something.
#[derive(Default)]
struct Seen {
    worlds: HashSet<String>,
    situations: usize,
    outcomes: BTreeMap<&'static str, usize>,
    /// How often a policy of each kind closed, denied or allowed.
    kinds: BTreeMap<String, usize>,
}

impl Seen {
    fn count(&mut self, outcome: &Outcome) {
        let (kind, names) = match outcome {
            Outcome::Open { by } if by.is_empty() => ("open by nobody", [&by[..], &[]]),
            Outcome::Open { by } => ("open", [&by[..], &[]]),
            Outcome::Closed { default_deny, denied_by } if denied_by.is_empty() => {
                ("closed", [&default_deny[..], &[]])
            }
            Outcome::Closed { default_deny, denied_by } => ("denied", [&default_deny[..], &denied_by[..]]),
            Outcome::Unknown => ("unknown", [&[][..], &[]]),
        };
        *self.outcomes.entry(kind).or_default() += 1;
        for name in names.into_iter().flatten() {
            let policy_kind = name.split('/').next().unwrap_or_default();
            *self.kinds.entry(format!("{policy_kind} {kind}")).or_default() += 1;
        }
    }
}

/// Whether the two answers are the same. Names too: who allows, who denies, and who isolates where nothing is denied
/// (the table holds what is named when both are in the way). For a range the state and the ports that are open
/// nevertheless.
fn same(expected: &Outcome, given: &Given, open: Option<&Vec<(u16, u16)>>) -> bool {
    match (expected, &given.outcome) {
        (Outcome::Unknown, Outcome::Unknown) => true,
        (Outcome::Open { by }, Outcome::Open { by: given }) => open.is_some() || by == given,
        (Outcome::Closed { .. }, Outcome::Closed { .. }) if open.is_some() => given.open.as_ref() == open,
        (
            Outcome::Closed { default_deny, denied_by },
            Outcome::Closed { default_deny: given_default, denied_by: given_denied },
        ) => denied_by == given_denied && (!denied_by.is_empty() || default_deny == given_default),
        _ => false,
    }
}

fn compare(
    world: &World,
    others: &[End],
    probes: &[Probe],
    seen: &RefCell<Seen>,
) -> Result<(), TestCaseError> {
    let engine = Engine::new(world);
    let mut seen = seen.borrow_mut();
    seen.worlds.insert(format!("{world:?}"));
    prop_assert_eq!(engine.rejected(), 0, "the engine cannot read a valid policy of\n{}", yaml(world));
    let pods = world.objects.iter().filter(|o| o["kind"] == "Pod").map(end_of);
    let ends: Vec<End> = pods.chain(others.iter().cloned()).collect();
    for (src, dst) in ends.iter().flat_map(|src| ends.iter().map(move |dst| (src, dst))) {
        let pods = [src, dst].iter().filter(|end| matches!(end, End::Pod { .. })).count();
        if src == dst || pods == 0 {
            continue;
        }
        for Probe { protocol, ports } in probes {
            let given = engine.ask(&Question { src, dst, protocol, ports: *ports });
            let expected = if ports.0 == ports.1 {
                reference(world, src, dst, protocol, ports.0).map(|outcome| (outcome, None))
            } else {
                reference_range(world, src, dst, protocol, *ports)
                    .map(|(outcome, open)| (outcome, Some(open)))
            };
            seen.situations += 1;
            for (way, ((expected, open), given)) in
                ["egress", "ingress"].iter().zip(expected.iter().zip(&given))
            {
                seen.count(expected);
                prop_assert!(
                    same(expected, given, open.as_ref()),
                    "{src:?} -> {dst:?} on {protocol}/{ports:?}: {way} is {expected:?} {open:?} for the reference, \
                     {given:?} for the engine, in\n{}",
                    yaml(world)
                );
            }
        }
    }
    Ok(())
}

/// A world for a person to read, and to put into the table.
fn yaml(world: &World) -> String {
    let head = format!("plugin: {:?}, mode: {:?}, version: {:?}", world.plugin, world.mode, world.version);
    let objects = serde_json::to_value(&world.objects).unwrap_or_default();
    serde_saphyr::to_string(&objects)
        .map_or_else(|_| format!("{head}\n{objects}"), |text| format!("{head}\n{text}"))
}

#[test]
fn engine_and_reference_agree() {
    let seen = RefCell::new(Seen::default());
    // More worlds by PROPTEST_CASES, never fewer. The world itself is printed, so no seed needs to be kept.
    let default = Config::default();
    let config = Config { cases: default.cases.max(WORLDS), failure_persistence: None, ..default };
    let result = TestRunner::new(config)
        .run(&(worlds::world(), worlds::others(), probes()), |(world, others, probes)| {
            compare(&world, &others, &probes, &seen)
        });
    match result {
        Ok(()) => {}
        // The reason names the question and prints the world; the value would print it again.
        Err(TestError::Fail(reason, _)) => panic!("{reason}"),
        Err(error) => panic!("{error}"),
    }
    let seen = seen.into_inner();
    assert!(seen.worlds.len() >= 2_000, "only {} different worlds", seen.worlds.len());
    assert!(seen.situations >= SITUATIONS, "only {} situations", seen.situations);
    // A comparison of worlds in which everything is open would prove nothing. (More than half of the answers are trivial:
    // one end in three is no pod and has no policies.)
    let total: usize = seen.outcomes.values().sum();
    for (outcome, per_mille) in [("open", 40), ("closed", 100), ("denied", 10), ("unknown", 2)] {
        let count = seen.outcomes.get(outcome).copied().unwrap_or_default();
        assert!(count * 1000 >= total * per_mille, "too few {outcome}: {:?} of {total}", seen.outcomes);
    }
    let kinds = "cnp closed, cnp denied, cnp open, ccnp closed, ccnp denied, ccnp open, np closed, np open, anp denied, \
                 anp open, banp denied, banp open";
    for kind in kinds.split(", ") {
        let count = seen.kinds.get(kind).copied().unwrap_or_default();
        assert!(count >= 200, "too few {kind}: {:?}", seen.kinds);
    }
}
