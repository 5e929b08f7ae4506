//! The scenarios, as data. Enters: nothing; leaves: one table of who plays, what is broken, and what the report must
//! say of it. How anything is done stands elsewhere.

/// One scenario.
pub(super) struct Scenario {
    /// What a person types.
    pub(super) name: &'static str,
    /// One sentence for people.
    pub(super) title: &'static str,
    /// How the pods are addressed.
    pub(super) family: Family,
    /// Whose nodes these claim to be: decides what crossing zones costs.
    pub(super) cloud: Cloud,
    /// The jobs, in the order in which they are created.
    pub(super) jobs: &'static [Job],
    /// The way between the zones.
    pub(super) wire: Way,
    /// What is broken before the workload starts, and mended later.
    pub(super) breach: Option<Breach>,
    /// When the agent starts.
    pub(super) agent: AgentStart,
    /// All that the report must find. Jobs without an entry must have no finding.
    pub(super) expect: &'static [Expected],
    /// Symptoms that may be found besides, because they are true as well.
    pub(super) allow: &'static [&'static str],
}

/// Address family of pods and nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Family {
    V4,
    V6,
}

/// A cloud by its provider IDs and zone names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cloud {
    /// Traffic between zones is free: what the other scenarios want.
    Azure,
    /// Traffic between zones is billed.
    Aws,
}

impl Cloud {
    /// The names of the two zones.
    pub(super) fn zones(self) -> [String; 2] {
        match self {
            Self::Azure => ["eastus-1".to_owned(), "eastus-2".to_owned()],
            Self::Aws => ["us-east-1a".to_owned(), "us-east-1b".to_owned()],
        }
    }

    /// The region of both zones.
    pub(super) fn region(self) -> &'static str {
        match self {
            Self::Azure => "eastus",
            Self::Aws => "us-east-1",
        }
    }

    /// A node's provider ID.
    pub(super) fn provider_id(self, zone: &str, node: &str) -> String {
        match self {
            Self::Azure => format!(
                "azure:///subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/lab/providers/Microsoft.Compute/virtualMachines/{node}"
            ),
            Self::Aws => format!("aws:///{zone}/i-{node}"),
        }
    }
}

/// A PyTorchJob.
pub(super) struct Job {
    pub(super) name: &'static str,
    /// Where rank 0 listens.
    pub(super) port: u16,
    /// By rank.
    pub(super) members: &'static [Seat],
}

/// Where a member runs.
pub(super) struct Seat {
    /// Index among the nodes: 0 and 1 are in the first zone, 2 in the second.
    pub(super) node: usize,
    pub(super) host_network: bool,
    /// It gets the address that this member (job, rank) of an earlier job had.
    pub(super) address_of: Option<(&'static str, usize)>,
}

/// The wire between the zones.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// One way.
    pub(super) delay_ms: u64,
    pub(super) loss_percent: u32,
}

/// What is broken: the ways from some members of a job to its rank 0.
pub(super) struct Breach {
    pub(super) how: How,
    pub(super) job: &'static str,
    /// Ranks whose way to rank 0 is closed.
    pub(super) from: &'static [usize],
    /// The object that says the same.
    pub(super) policy: Policy,
}

/// Who breaks it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// A packet filter in the node's host namespace drops.
    NftDrop,
    /// A packet filter in the node's host namespace rejects: a reset for the first source, ICMP for the others.
    NftReject,
    /// A program on the pod's interface returns `TC_ACT_SHOT`.
    TcShot,
    /// The wire between the zones swallows SYNs: no kernel drops anything.
    WireSwallows,
    /// Nobody listens: rank 0 starts late.
    NoListener,
}

/// The policy object beside a packet filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Policy {
    /// There is none: the cause lies elsewhere.
    Absent,
    Kubernetes,
    Cilium,
}

/// When the agent starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AgentStart {
    /// Before any connection.
    First,
    /// When all connections are open.
    Late,
}

/// A finding that the report must have.
pub(super) struct Expected {
    pub(super) job: &'static str,
    pub(super) symptom: &'static str,
    /// Cause kinds, any of them; empty: the symptom has none.
    pub(super) causes: &'static [&'static str],
}

const fn pod(node: usize) -> Seat {
    Seat { node, host_network: false, address_of: None }
}

const fn host(node: usize) -> Seat {
    Seat { node, host_network: true, address_of: None }
}

const LLAMA: Job = Job { name: "llama", port: 29500, members: &[pod(2), pod(0), pod(1), pod(2)] };
const MISTRAL: Job = Job { name: "mistral", port: 29500, members: &[pod(2), pod(1), pod(0)] };
const LLAMA_HOST: Job = Job { name: "llama", port: 29500, members: &[host(2), host(0), pod(1)] };
const MISTRAL_HOST: Job = Job { name: "mistral", port: 29501, members: &[host(2), host(0), pod(1)] };
const HEIR: Job = Job {
    name: "mistral",
    port: 29500,
    members: &[pod(2), Seat { node: 1, host_network: false, address_of: Some(("llama", 2)) }, pod(2)],
};

const STRAIGHT: Way = Way { delay_ms: 0, loss_percent: 0 };
const WORKERS_ACROSS: &[usize] = &[1, 2];
/// What a block with a matching policy object is to be called.
const BY_POLICY: &[&str] = &["policy"];

const fn block(job: &'static str, causes: &'static [&'static str]) -> Expected {
    Expected { job, symptom: "hard-block", causes }
}

const PLAIN: Scenario = Scenario {
    name: "healthy",
    title: "nothing is broken: the report must find nothing",
    family: Family::V4,
    cloud: Cloud::Azure,
    jobs: &[LLAMA],
    wire: STRAIGHT,
    breach: None,
    agent: AgentStart::First,
    expect: &[],
    allow: &[],
};

/// A wire that is a process adds a latency of its own, on a busy machine enough to be found: rightly.
const WIRE_IS_SLOW: &[&str] = &["cross-zone-latency"];

const fn breach(how: How, policy: Policy) -> Option<Breach> {
    Some(Breach { how, job: "llama", from: WORKERS_ACROSS, policy })
}

/// All scenarios.
pub(super) static SCENARIOS: [Scenario; 13] = [
    PLAIN,
    Scenario {
        name: "block-nft",
        title: "a packet filter on the workers' nodes drops what goes to the coordinator",
        breach: breach(How::NftDrop, Policy::Kubernetes),
        expect: &[block("llama", BY_POLICY)],
        ..PLAIN
    },
    Scenario {
        name: "block-tc",
        title: "a TC program on the workers' interfaces returns TC_ACT_SHOT, as Cilium and AWS do",
        breach: breach(How::TcShot, Policy::Cilium),
        expect: &[block("llama", BY_POLICY)],
        ..PLAIN
    },
    Scenario {
        name: "block-silent",
        title: "SYNs vanish between the zones: no kernel drops anything",
        breach: breach(How::WireSwallows, Policy::Absent),
        expect: &[block("llama", &["unanswered"])],
        allow: WIRE_IS_SLOW,
        ..PLAIN
    },
    Scenario {
        name: "refused",
        title: "nobody listens at the coordinator: connects are refused",
        breach: Some(Breach { how: How::NoListener, job: "llama", from: &[1, 2, 3], policy: Policy::Absent }),
        expect: &[block("llama", &["refused"])],
        ..PLAIN
    },
    Scenario {
        name: "reject",
        title: "a packet filter rejects, with a reset for one worker and ICMP for the other",
        breach: breach(How::NftReject, Policy::Kubernetes),
        expect: &[block("llama", BY_POLICY)],
        ..PLAIN
    },
    Scenario {
        name: "slow",
        title: "10 ms one way between the zones, on a cloud that bills it",
        cloud: Cloud::Aws,
        wire: Way { delay_ms: 10, loss_percent: 0 },
        expect: &[Expected { job: "llama", symptom: "cross-zone-latency", causes: &[] }],
        allow: &["egress-cost"],
        ..PLAIN
    },
    Scenario {
        name: "lossy",
        title: "2 % of all frames between the zones are lost",
        wire: Way { delay_ms: 0, loss_percent: 2 },
        allow: WIRE_IS_SLOW,
        ..PLAIN
    },
    Scenario {
        name: "hostnetwork",
        title: "two jobs with hostNetwork pods share their nodes' addresses; one is blocked",
        jobs: &[LLAMA_HOST, MISTRAL_HOST],
        breach: breach(How::NftDrop, Policy::Absent),
        expect: &[block("llama", &["unknown"])],
        ..PLAIN
    },
    Scenario {
        name: "address-reuse",
        title: "a job ends, and within a second a blocked pod of another job has one of its addresses",
        jobs: &[LLAMA, HEIR],
        breach: Some(Breach { how: How::NftDrop, job: "mistral", from: &[1], policy: Policy::Kubernetes }),
        expect: &[block("mistral", BY_POLICY)],
        ..PLAIN
    },
    Scenario {
        name: "late-agent",
        title: "the agent starts when all connections are open",
        agent: AgentStart::Late,
        ..PLAIN
    },
    Scenario {
        name: "two-jobs",
        title: "one job is blocked, its neighbour on the same nodes is not",
        jobs: &[LLAMA, MISTRAL],
        breach: breach(How::NftDrop, Policy::Kubernetes),
        expect: &[block("llama", BY_POLICY)],
        ..PLAIN
    },
    Scenario {
        name: "ipv6",
        title: "the block of block-nft, in IPv6",
        family: Family::V6,
        breach: breach(How::NftDrop, Policy::Kubernetes),
        expect: &[block("llama", BY_POLICY)],
        ..PLAIN
    },
];

/// A scenario by its name.
pub(super) fn named(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_broken_is_expected_and_exists() {
        for scenario in &SCENARIOS {
            assert_eq!(SCENARIOS.iter().filter(|other| other.name == scenario.name).count(), 1);
            let job = |name| scenario.jobs.iter().find(|job| job.name == name);
            for expected in scenario.expect {
                assert!(job(expected.job).is_some(), "{}", scenario.name);
            }
            if let Some(breach) = &scenario.breach {
                let members = job(breach.job).unwrap().members;
                assert!(breach.from.iter().all(|rank| (1..members.len()).contains(rank)));
                assert!(scenario.expect.iter().any(|expected| expected.job == breach.job));
            }
        }
    }
}
