//! Which connections a job needs. Enters: two members; leaves: what to ask the policies. Must not know policies.

use std::collections::BTreeSet;

use crate::check::gangs::{Gang, MemberPod};
use crate::check::wording;
use crate::check::world::World;
use crate::facts::{Pod, Protocol, Service};
use crate::membership::{JobKind, Role};
use crate::policy::Ports;

/// Linux's default `net.ipv4.ip_local_port_range`: where the kernel picks ports for listeners that name none.
const EPHEMERAL_PORTS: (u16, u16) = (32_768, 60_999);
/// Ports of a member that are looked at.
const MAX_PORTS: usize = 32;

/// Why a connection is needed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Need {
    /// A port that the job itself names.
    Rendezvous,
    /// Collectives between members: the kernel picks the port.
    Collectives,
    /// Collectives, if this member takes part in them.
    Perhaps,
}

/// A question about two members: all ports from the first to the last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Ask {
    pub(super) need: Need,
    pub(super) protocol: Protocol,
    first: u16,
    last: u16,
}

impl Ask {
    fn one(protocol: Protocol, port: u16) -> Self {
        Self { need: Need::Rendezvous, protocol, first: port, last: port }
    }

    /// The ports, as the policies are asked.
    pub(super) fn question(&self) -> Ports {
        if self.need == Need::Rendezvous {
            Ports::One(self.first)
        } else {
            Ports::Range(self.first, self.last)
        }
    }

    pub(super) fn ports(&self) -> String {
        wording::ports((self.first, self.last))
    }

    pub(super) fn told(&self) -> String {
        let ports = self.ports();
        match self.need {
            Need::Rendezvous => format!("{} {ports}", self.protocol.name()),
            Need::Collectives | Need::Perhaps => format!("{} {ports} (collectives)", self.protocol.name()),
        }
    }

    /// How much of it is closed.
    pub(super) fn evidence(&self, closed: u64, pairs: u64, open: &BTreeSet<(u16, u16)>) -> Vec<String> {
        let mut lines =
            vec![format!("{}: closed for {closed} of {pairs} ordered pairs of pods", self.told())];
        if !open.is_empty() {
            let all = wording::width((self.first, self.last));
            let some: u32 = open.iter().map(|range| wording::width(*range)).sum();
            lines.push(format!(
                "only {some} of the {all} ports that the kernel picks from are open: {} of {}",
                open.iter().map(|range| wording::ports(*range)).collect::<Vec<_>>().join(", "),
                self.ports()
            ));
        }
        if self.need == Need::Perhaps {
            lines.push(
                "one end asks for no accelerators while others do: whether it takes part in collectives is not known"
                    .to_owned(),
            );
        }
        lines
    }
}

/// Knows what the members of one job need of each other.
pub(super) struct Asker {
    kind: JobKind,
    services: Vec<Service>,
    /// Whether the members that compute ask for accelerators.
    accelerated: bool,
    has_lead: bool,
}

impl Asker {
    pub(super) fn new(world: &World, gang: &Gang<'_>) -> Self {
        let members = gang.members();
        let services = world.objects.iter().filter_map(Service::from_object);
        Self {
            kind: gang.job.id.kind.clone(),
            services: services.filter(|service| service.namespace == gang.name.namespace).collect(),
            accelerated: members.iter().any(|member| member.pod.gpus > 0),
            has_lead: members.iter().any(|member| member.role == Some(Role::Coordinator)),
        }
    }

    /// What `src` needs to open to `dst`.
    pub(super) fn asks(&self, src: &MemberPod<'_>, dst: &MemberPod<'_>) -> Vec<Ask> {
        // Initializers, submitters and evaluators are not part of the collective.
        if src.role == Some(Role::Other) || dst.role == Some(Role::Other) {
            return Vec::new();
        }
        let mut asks: BTreeSet<Ask> = BTreeSet::new();
        if self.is_met_at_its_ports(dst.role) {
            asks.extend(self.rendezvous(src.pod, dst).into_iter().take(MAX_PORTS));
        }
        if let Some(need) = self.collectives(src, dst) {
            let (first, last) = dst.pod.local_ports.unwrap_or(EPHEMERAL_PORTS);
            asks.insert(Ask { need, protocol: Protocol::Tcp, first, last });
        }
        asks.into_iter().collect()
    }

    /// Declared ports of plain workers are often only inherited from a shared template, but TensorFlow's servers and
    /// MPI's SSH listen on them.
    fn is_met_at_its_ports(&self, role: Option<Role>) -> bool {
        match role {
            Some(Role::Coordinator | Role::ParameterServer) => true,
            Some(Role::Worker) => matches!(self.kind, JobKind::TFJob | JobKind::MPIJob),
            _ => !self.has_lead,
        }
    }

    fn rendezvous(&self, src: &Pod, dst: &MemberPod<'_>) -> Vec<Ask> {
        let mut asks = Vec::new();
        for port in dst.pod.ports.iter().filter(|port| !port.name.as_deref().is_some_and(watched)) {
            asks.push(Ask::one(port.protocol, port.port));
        }
        if dst.role != Some(Role::Worker) {
            let named = [&dst.pod.env, &src.env];
            let ports = named.iter().flat_map(|env| {
                ["MASTER_PORT", "PET_MASTER_PORT"].into_iter().filter_map(|name| env.get(name)?.parse().ok())
            });
            asks.extend(ports.map(|port| Ask::one(Protocol::Tcp, port)));
        }
        let serving = self.services.iter().filter(|service| {
            let selector = service.selector.as_ref();
            selector.is_some_and(|s| s.iter().all(|(key, value)| dst.pod.labels.get(key) == Some(value)))
        });
        for port in
            serving.flat_map(|service| &service.ports).filter(|p| !p.name.as_deref().is_some_and(watched))
        {
            asks.extend(port.target.map(|target| Ask::one(port.protocol, target)));
        }
        asks
    }

    fn collectives(&self, src: &MemberPod<'_>, dst: &MemberPod<'_>) -> Option<Need> {
        let bare = |member: &MemberPod<'_>| member.role == Some(Role::Coordinator) && member.pod.gpus == 0;
        match self.kind {
            // The launcher only starts the others, which then call back.
            JobKind::MPIJob if bare(src) && self.accelerated => None,
            // Ray's workers and head pick ports for each other whatever they compute with.
            JobKind::MPIJob | JobKind::RayCluster | JobKind::RayJob | JobKind::RayService => {
                Some(Need::Collectives)
            }
            _ if self.accelerated && (bare(src) || bare(dst)) => Some(Need::Perhaps),
            _ => Some(Need::Collectives),
        }
    }
}

/// Ports for people and monitors, which no member connects to.
fn watched(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [
        "metric",
        "health",
        "prom",
        "dashboard",
        "probe",
        "debug",
        "tensorboard",
        "notebook",
        "profil",
        "exporter",
    ]
    .iter()
    .any(|word| name.contains(word))
}
