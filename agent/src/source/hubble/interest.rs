//! What to ask a server for. Enters: the pods of jobs on this node; leaves: the server's filters, and the same question
//! asked again of what it sends: its pod filter means prefixes, and an old server ignores what it does not know.

use std::collections::BTreeSet;
use std::net::IpAddr;

use firedoor_core::inventory::FastMap;
use firedoor_core::observation::{End, Flow};
use firedoor_proto::flow::FlowFilter;

/// What is worth asking for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interest {
    /// Everything, whoever it concerns.
    pub everything: bool,
    /// What concerns these pods (namespace, name) at either end.
    pub pods: BTreeSet<(String, String)>,
    /// What concerns these addresses at either end: pods on the host's network, and pods so young that the server does not
    /// know their names yet.
    pub addresses: BTreeSet<IpAddr>,
}

impl Interest {
    /// Whether there is nothing to ask for.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        !self.everything && self.pods.is_empty() && self.addresses.is_empty()
    }

    /// The server's whitelist; empty means everything. There is no filter for "either end", so each comes twice. Servers
    /// compare every event with every name: beyond `most` names whole namespaces are asked for.
    #[must_use]
    pub fn whitelist(&self, most: usize) -> Vec<FlowFilter> {
        let pods: Vec<String> = if self.pods.len() <= most {
            self.pods.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect()
        } else {
            let namespaces: BTreeSet<&str> =
                self.pods.iter().map(|(namespace, _)| namespace.as_str()).collect();
            namespaces.into_iter().map(|namespace| format!("{namespace}/")).collect()
        };
        if self.everything || pods.len() > most || self.addresses.len() > most {
            return Vec::new();
        }
        let addresses: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
        let mut filters = Vec::new();
        if !pods.is_empty() {
            filters.push(FlowFilter { source_pod: pods.clone(), ..FlowFilter::default() });
            filters.push(FlowFilter { destination_pod: pods, ..FlowFilter::default() });
        }
        if !addresses.is_empty() {
            filters.push(FlowFilter { source_ip: addresses.clone(), ..FlowFilter::default() });
            filters.push(FlowFilter { destination_ip: addresses, ..FlowFilter::default() });
        }
        filters
    }
}

/// The same question, quick to ask of each flow.
#[derive(Debug, Default)]
pub(super) struct Asked {
    everything: bool,
    pods: FastMap<Box<str>, FastMap<Box<str>, ()>>,
    addresses: FastMap<IpAddr, ()>,
}

impl Asked {
    pub(super) fn of(interest: &Interest) -> Self {
        let mut pods: FastMap<Box<str>, FastMap<Box<str>, ()>> = FastMap::default();
        for (namespace, name) in &interest.pods {
            pods.entry(namespace.as_str().into()).or_default().insert(name.as_str().into(), ());
        }
        let addresses = interest.addresses.iter().map(|address| (*address, ())).collect();
        Self { everything: interest.everything, pods, addresses }
    }

    /// Whether a flow was asked for.
    pub(super) fn for_flow(&self, flow: &Flow<'_>) -> bool {
        self.everything || self.end(&flow.src) || self.end(&flow.dst)
    }

    fn end(&self, end: &End<'_>) -> bool {
        let named = |(namespace, name): (&str, &str)| {
            self.pods.get(namespace).is_some_and(|names| names.contains_key(name))
        };
        end.pod.is_some_and(named)
            || (!self.addresses.is_empty() && end.ip.is_some_and(|ip| self.addresses.contains_key(&ip)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(names: &[(&str, &str)]) -> BTreeSet<(String, String)> {
        names.iter().map(|(namespace, name)| ((*namespace).to_owned(), (*name).to_owned())).collect()
    }

    #[test]
    fn many_pods_become_namespaces_and_many_namespaces_everything() {
        let few = Interest { pods: pods(&[("a", "x"), ("a", "y"), ("b", "x")]), ..Interest::default() };
        let of = |filters: &[FlowFilter]| {
            filters.iter().map(|f| (f.source_pod.join(","), f.destination_pod.join(","))).collect::<Vec<_>>()
        };
        let both = |text: &str| vec![(text.to_owned(), String::new()), (String::new(), text.to_owned())];
        assert_eq!(of(&few.whitelist(3)), both("a/x,a/y,b/x"));
        assert_eq!(of(&few.whitelist(2)), both("a/,b/"));
        assert!(few.whitelist(1).is_empty());
        assert!(Interest { everything: true, ..few }.whitelist(3).is_empty());
        assert!(Interest::default().is_nothing());
    }

    #[test]
    fn addresses_are_asked_for_at_both_ends() {
        let interest = Interest { addresses: ["10.0.0.1".parse().unwrap()].into(), ..Interest::default() };
        let filters = interest.whitelist(3);
        assert_eq!((filters[0].source_ip.len(), filters[1].destination_ip.len(), filters.len()), (1, 1, 2));
        let asked = Asked::of(&interest);
        assert!(asked.end(&End::at("10.0.0.1".parse().unwrap(), 1)));
        assert!(!asked.end(&End::at("10.0.0.2".parse().unwrap(), 1)));
    }
}
