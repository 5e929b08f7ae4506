//! CiliumNetworkPolicy and CiliumClusterwideNetworkPolicy. Enters: the object; leaves: one [`Policy`] per spec. The
//! meaning follows the CRD's field texts and Cilium's own validation (cilium/cilium `pkg/policy/api`).

use serde_json::Value;

use super::answer::{Direction, PolicyRef};
use super::builder::{Builder, is_port_name};
use super::field::{Malformed, Read, flag, items, list, malformed, network_or_address, network_with_holes};
use super::field::{object, objects, port, text, texts};
use super::model::{
    Action, Block, Doubt, Inside, PeerTerm, Policy, PortMatch, PortTerm, Range, Rule, Section,
};
use super::model::{Subject, Tier, Transport};
use super::selector::{Attribute, Requirement, Selector, Source, Test, Truth, read_required, read_selector};
use crate::facts::{Protocol, Service};
use crate::object::Object;

/// `enableDefaultDeny` exists since this version (cilium/cilium pull request #30572); older API servers drop it.
const ENABLE_DEFAULT_DENY_SINCE: (u16, u16) = (1, 16);
/// `toServices` covers services with selectors since this version; before, they mean nothing (cilium/cilium pull
/// requests #34208, #37089).
const SERVICE_SELECTORS_SINCE: (u16, u16) = (1, 17);
/// The API's limit of ports in one `toPorts` entry.
const MAX_PORTS: usize = 40;
/// What the entity `cluster` covers besides pods (cilium/cilium `pkg/policy/api/entity.go`, `InitEntities`).
const CLUSTER: [&str; 7] =
    ["host", "remote-node", "init", "ingress", "health", "unmanaged", "kube-apiserver"];
const NAMESPACE_KEY: &str = "k8s:io.kubernetes.pod.namespace";

/// Compiles an object; all of it is malformed when any spec is.
pub(super) fn compile(
    object: &Object,
    reference: &PolicyRef,
    builder: &mut Builder<'_>,
) -> Read<Vec<Policy>> {
    let specs = specs(object)?;
    if specs.is_empty() {
        return malformed("neither spec nor specs");
    }
    specs.into_iter().map(|spec| policy(spec, reference, builder)).collect()
}

/// Whom an object selects of which something is malformed: whatever could be meant.
pub(super) fn suspects(object: &Object, reference: &PolicyRef, builder: &mut Builder<'_>) -> Vec<Subject> {
    let specs = specs(object).unwrap_or_default();
    let read: Read<Vec<Subject>> = specs.into_iter().map(|spec| subject(spec, reference, builder)).collect();
    match read {
        Ok(subjects) if !subjects.is_empty() => subjects,
        _ => vec![Subject::Endpoints(builder.cilium(own_namespace(reference)))],
    }
}

fn specs(object: &Object) -> Read<Vec<&Value>> {
    let one = super::field::object(object.value(), "spec")?;
    Ok(one.into_iter().chain(objects(object.value(), "specs")?).collect())
}

fn own_namespace(reference: &PolicyRef) -> Vec<Requirement<Attribute>> {
    reference.namespace.iter().map(|name| (Attribute::Namespace, Test::In(vec![name.clone()]))).collect()
}

fn cilium_keys(requirements: Vec<Requirement<String>>) -> Vec<Requirement<Attribute>> {
    requirements.into_iter().map(|(key, test)| (Attribute::cilium(&key), test)).collect()
}

/// A CiliumNetworkPolicy always selects in its own namespace: a label match on another one is removed, with a
/// warning in the agent's log (cilium/cilium `pkg/k8s/apis/cilium.io/utils`, `ParseToCiliumRule`).
fn subject(spec: &Value, reference: &PolicyRef, builder: &mut Builder<'_>) -> Read<Subject> {
    match (object(spec, "endpointSelector")?, object(spec, "nodeSelector")?) {
        (Some(selector), None) => {
            let mut written = read_selector(selector)?;
            let named =
                selector.pointer("/matchLabels").is_some_and(|labels| labels.get(NAMESPACE_KEY).is_some());
            let illegal = reference.namespace.is_some() && named;
            if let Some(at) = written.iter().position(|(key, _)| illegal && key == NAMESPACE_KEY) {
                written.remove(at);
            }
            let mut requirements = cilium_keys(written);
            requirements.extend(own_namespace(reference));
            Ok(Subject::Endpoints(builder.cilium(requirements)))
        }
        (None, Some(_)) if reference.namespace.is_none() => Ok(Subject::Nodes),
        (None, Some(_)) => malformed("nodeSelector in a namespaced policy"),
        (Some(_), Some(_)) => malformed("both endpointSelector and nodeSelector"),
        (None, None) => malformed("neither endpointSelector nor nodeSelector"),
    }
}

fn policy(spec: &Value, reference: &PolicyRef, builder: &mut Builder<'_>) -> Read<Policy> {
    let subject = subject(spec, reference, builder)?;
    let init = Attribute::Security(Source::Reserved, "init".to_owned());
    let selected = object(spec, "endpointSelector")?.map(read_selector).transpose()?.unwrap_or_default();
    let scope = Scope {
        namespace: reference.namespace.as_deref(),
        init: selected.iter().any(|(key, _)| Attribute::cilium(key) == init),
    };
    Ok(Policy {
        reference: reference.clone(),
        tier: Tier::Namespace,
        subject,
        ingress: section(spec, Direction::Ingress, &scope, builder)?,
        egress: section(spec, Direction::Egress, &scope, builder)?,
        unreadable: false,
    })
}

/// Which pods a peer selector without a namespace means.
struct Scope<'a> {
    namespace: Option<&'a str>,
    /// The policy selects endpoints that have no labels yet, so not even a namespace.
    init: bool,
}

/// Default deny is on in a direction with rules, allow or deny, unless `enableDefaultDeny` says otherwise (CRD field
/// text). Asking for it without any rule: the text says yes, newer agents make no entry of it; so perhaps.
fn section(
    spec: &Value,
    direction: Direction,
    scope: &Scope<'_>,
    builder: &mut Builder<'_>,
) -> Read<Section> {
    let name = direction.as_str();
    let mut section = Section::default();
    let allows = objects(spec, name)?;
    let denies = objects(spec, &format!("{name}Deny"))?;
    let asked = match object(spec, "enableDefaultDeny")? {
        Some(wish) if !builder.cilium_before(ENABLE_DEFAULT_DENY_SINCE) => flag(wish, name)?,
        _ => None,
    };
    let has_rules = !(allows.is_empty() && denies.is_empty());
    section.isolates = match asked {
        None => Truth::from(has_rules),
        Some(true) if !has_rules => Truth::Maybe,
        Some(wish) => Truth::from(wish),
    };
    for (action, rules) in [(Action::Allow, allows), (Action::Deny, denies)] {
        for value in rules {
            let reader = RuleReader { value, prefix: prefix(direction), scope };
            section.requires |= !reader.items("Requires")?.is_empty();
            section.rules.extend(reader.rules(action, builder)?);
        }
    }
    Ok(section)
}

fn prefix(direction: Direction) -> &'static str {
    match direction {
        Direction::Ingress => "from",
        Direction::Egress => "to",
    }
}

struct RuleReader<'a> {
    value: &'a Value,
    prefix: &'static str,
    scope: &'a Scope<'a>,
}

impl<'a> RuleReader<'a> {
    fn items(&self, suffix: &str) -> Read<&'a [Value]> {
        items(self.value, &format!("{}{suffix}", self.prefix))
    }

    /// One rule per `toPorts` entry, since the entries are alternatives.
    fn rules(&self, action: Action, builder: &mut Builder<'_>) -> Read<Vec<Rule>> {
        let (ports, icmps) = (objects(self.value, "toPorts")?, objects(self.value, "icmps")?);
        if !ports.is_empty() && !icmps.is_empty() {
            return malformed("icmps and toPorts in one rule");
        }
        let peers = self.peers(!ports.is_empty() || !icmps.is_empty(), builder)?;
        let mut rules = Vec::new();
        for entry in ports {
            rules.push(port_rule(entry, action, peers.clone(), builder)?);
        }
        if !icmps.is_empty() {
            let rule = Rule::new(action, peers.clone(), PortMatch::Icmp);
            rules.push(Rule { doubt: Some(Doubt::IcmpType), ..rule });
        }
        if rules.is_empty() {
            rules.push(Rule::new(action, peers, PortMatch::All));
        }
        let mode =
            object(self.value, "authentication")?.map(|auth| text(auth, "mode")).transpose()?.flatten();
        let authentication = mode.is_some_and(|mode| mode != "disabled");
        Ok(rules.into_iter().map(|rule| Rule { authentication, ..rule }).collect())
    }

    /// Only one kind of peers is allowed in a rule. Without any, a rule with ports means everybody and one without
    /// means nobody; a list that is there but empty means nobody (cilium/cilium `pkg/policy/utils`,
    /// `mergeEndpointSelectors`, and `pkg/policy/api/rule_validation.go`).
    fn peers(&self, has_ports: bool, builder: &mut Builder<'_>) -> Read<Vec<PeerTerm>> {
        const KINDS: [&str; 8] =
            ["Endpoints", "Nodes", "Entities", "CIDR", "CIDRSet", "FQDNs", "Groups", "Services"];
        const EMPTY_MEANS_NOBODY: usize = 5;
        let mut terms: Option<(&str, Vec<PeerTerm>)> = None;
        let mut nobody = false;
        for (at, kind) in KINDS.into_iter().enumerate() {
            let values = match list(self.value, &format!("{}{kind}", self.prefix))? {
                None => continue,
                Some([]) => {
                    nobody |= at < EMPTY_MEANS_NOBODY;
                    continue;
                }
                Some(values) => values,
            };
            if let Some((other, _)) = terms {
                return malformed(format!("{other} and {kind} peers in one rule"));
            }
            terms = Some((kind, self.terms(kind, values, builder)?));
        }
        if has_ports && matches!(terms, Some(("Services", _))) {
            return malformed("toServices and toPorts in one rule");
        }
        Ok(match terms {
            _ if nobody => Vec::new(),
            Some((_, terms)) => terms,
            None if has_ports => vec![PeerTerm::Any],
            None => Vec::new(),
        })
    }

    fn terms(&self, kind: &str, values: &[Value], builder: &mut Builder<'_>) -> Read<Vec<PeerTerm>> {
        let one = |term| Ok(vec![term]);
        let all: Read<Vec<Vec<PeerTerm>>> = match kind {
            "Endpoints" => {
                values.iter().map(|v| one(PeerTerm::Matching(self.endpoints(v, builder)?))).collect()
            }
            "Entities" => texts(values, kind)?.into_iter().map(|name| entity(name, builder)).collect(),
            "CIDR" => {
                let networks = texts(values, kind)?.into_iter().map(network_or_address);
                networks.map(|net| one(block(net?, Vec::new(), builder))).collect()
            }
            "CIDRSet" => values.iter().map(|v| one(cidr_rule(v, builder)?)).collect(),
            "Services" => values.iter().map(|v| services(v, builder)).collect(),
            "Nodes" => one(PeerTerm::Doubtful(Range::Nodes, Doubt::NodeLabels)).map(|terms| vec![terms]),
            "FQDNs" => one(PeerTerm::Doubtful(Range::Outside, Doubt::Fqdn)).map(|terms| vec![terms]),
            _ => one(PeerTerm::Doubtful(Range::Outside, Doubt::Groups)).map(|terms| vec![terms]),
        };
        Ok(all?.into_iter().flatten().collect())
    }

    /// A selector that names `reserved:` labels or the namespace is taken as it is: one that only excludes a namespace
    /// also means what has none. Otherwise it means the policy's namespace, unless it names labels of namespaces, or
    /// all pods in a clusterwide policy (cilium/cilium `pkg/k8s/apis/cilium.io/utils`, `getEndpointSelector`).
    fn endpoints(&self, selector: &Value, builder: &mut Builder<'_>) -> Read<Selector> {
        if !selector.is_object() {
            return malformed("an endpoint selector is not an object");
        }
        let mut requirements = cilium_keys(read_selector(selector)?);
        let has = |test: fn(&Attribute) -> bool| requirements.iter().any(|(attribute, _)| test(attribute));
        let complete = has(|attribute| attribute.is_reserved() || *attribute == Attribute::Namespace);
        let added = match self.scope.namespace {
            Some(name) if !has(Attribute::is_namespace_label) => Some(Test::In(vec![name.to_owned()])),
            None if !self.scope.init => Some(Test::Exists),
            _ => None,
        };
        requirements.extend(added.filter(|_| !complete).map(|test| (Attribute::Namespace, test)));
        Ok(builder.cilium(requirements))
    }
}

fn reserved(name: &str, builder: &mut Builder<'_>) -> PeerTerm {
    let attribute = Attribute::Security(Source::Reserved, name.to_owned());
    PeerTerm::Matching(builder.cilium(vec![(attribute, Test::Exists)]))
}

fn entity(name: &str, builder: &mut Builder<'_>) -> Read<Vec<PeerTerm>> {
    Ok(match name {
        "all" => vec![PeerTerm::Any],
        "none" => Vec::new(),
        "cluster" => {
            let pods = PeerTerm::Matching(builder.cilium(vec![(Attribute::Namespace, Test::Exists)]));
            let rest = CLUSTER.into_iter().map(|name| reserved(name, builder));
            std::iter::once(pods).chain(rest).collect()
        }
        "world" | "world-ipv4" | "world-ipv6" => vec![reserved(name, builder)],
        _ if CLUSTER.contains(&name) => vec![reserved(name, builder)],
        _ => return malformed(format!("unknown entity {name:?}")),
    })
}

fn block(net: ipnet::IpNet, holes: Vec<ipnet::IpNet>, builder: &mut Builder<'_>) -> PeerTerm {
    PeerTerm::Block(builder.block(Block { net, holes, inside: Inside::Never }))
}

fn cidr_rule(value: &Value, builder: &mut Builder<'_>) -> Read<PeerTerm> {
    let by_name = text(value, "cidrGroupRef")?.is_some_and(|name| !name.is_empty());
    if by_name || object(value, "cidrGroupSelector")?.is_some() {
        return Ok(PeerTerm::Doubtful(Range::Outside, Doubt::CidrGroup));
    }
    let (net, holes) = network_with_holes(value)?;
    Ok(block(net, holes, builder))
}

/// A service with a selector means its backends, by labels and namespace; one without means its endpoints' addresses,
/// as a CIDR rule. A reference without a namespace means services of that name in all namespaces
/// (cilium/cilium `pkg/policy/k8s/service.go`).
fn services(value: &Value, builder: &mut Builder<'_>) -> Read<Vec<PeerTerm>> {
    let (by_name, by_labels) = (object(value, "k8sService")?, object(value, "k8sServiceSelector")?);
    let Some(reference) = by_labels.or(by_name) else {
        return malformed("toServices without k8sService or k8sServiceSelector");
    };
    let namespace = text(reference, "namespace")?.filter(|name| !name.is_empty());
    let wanted = match by_labels {
        Some(reference) => Wanted::Labels(read_required(reference, "selector")?),
        None => Wanted::Name(text(reference, "serviceName")?.unwrap_or_default()),
    };
    let here = |service: &&Service| namespace.is_none_or(|name| name == service.namespace);
    let all = builder.services;
    let found: Vec<&Service> = all.iter().filter(here).filter(|s| wanted.means(s)).collect();
    if found.is_empty() {
        // One that nobody recorded may mean pods or addresses, but never nodes.
        let old = builder.cilium_before(SERVICE_SELECTORS_SINCE);
        let range = if old { Range::Outside } else { Range::PodsAndOutside };
        return Ok(vec![PeerTerm::Doubtful(range, Doubt::ServiceUnknown)]);
    }
    Ok(found.into_iter().filter_map(|service| backends(service, builder)).collect())
}

enum Wanted<'a> {
    Name(&'a str),
    Labels(Vec<Requirement<String>>),
}

impl Wanted<'_> {
    fn means(&self, service: &Service) -> bool {
        let holds = |(key, test): &Requirement<String>| {
            let key = key.split_once(':').map_or(key.as_str(), |(_, key)| key);
            let value = service.labels.get(key);
            match test {
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
            }
        };
        match self {
            Self::Name(name) => service.name == *name,
            Self::Labels(requirements) => requirements.iter().all(holds),
        }
    }
}

/// `None`: it means nobody.
fn backends(service: &Service, builder: &mut Builder<'_>) -> Option<PeerTerm> {
    let Some(labels) = &service.selector else {
        return Some(PeerTerm::Doubtful(Range::Outside, Doubt::ServiceBackends));
    };
    if builder.cilium_before(SERVICE_SELECTORS_SINCE) {
        return None;
    }
    let attribute = |key: &String| Attribute::Security(Source::K8s, key.clone());
    let mut requirements: Vec<_> =
        labels.iter().map(|(key, value)| (attribute(key), Test::In(vec![value.clone()]))).collect();
    requirements.push((Attribute::Namespace, Test::In(vec![service.namespace.clone()])));
    Some(PeerTerm::Matching(builder.cilium(requirements)))
}

/// `rules` and TLS fields restrict what passes on an open connection; the connection itself opens.
fn port_rule(entry: &Value, action: Action, peers: Vec<PeerTerm>, builder: &mut Builder<'_>) -> Read<Rule> {
    const TLS: [&str; 3] = ["terminatingTLS", "originatingTLS", "listener"];
    let ports = objects(entry, "ports")?;
    if ports.len() > MAX_PORTS {
        return malformed(format!("more than {MAX_PORTS} ports in one toPorts entry"));
    }
    let mut terms = Vec::new();
    for value in ports {
        terms.extend(port_term(value, builder)?);
    }
    let application =
        object(entry, "rules")?.and_then(Value::as_object).is_some_and(|rules| !rules.is_empty());
    let tls = !items(entry, "serverNames")?.is_empty()
        || TLS.iter().any(|name| entry.get(name).is_some_and(|value| !value.is_null()));
    let (ports, doubt) = match ports {
        [] => (PortMatch::All, Some(Doubt::NoPorts)),
        _ => (PortMatch::Terms(terms), None),
    };
    Ok(Rule { doubt, application: application || tls, ..Rule::new(action, peers, ports) })
}

/// `None` for protocols without ports that nobody asks about here. Port 0 means all ports of the protocol; `endPort`
/// beside a port name is ignored (Cilium documentation, layer 4 policy). ICMP cannot be matched by `toPorts`.
fn port_term(value: &Value, builder: &mut Builder<'_>) -> Read<Option<(Transport, PortTerm)>> {
    const OTHERS: [&str; 7] = ["VRRP", "IGMP", "GRE", "IPIP", "IPV6", "ESP", "AH"];
    let transport = match text(value, "protocol")?.unwrap_or_default() {
        "" | "ANY" => Some(Transport::WithPorts),
        "TCP" => Some(Transport::Only(Protocol::Tcp)),
        "UDP" => Some(Transport::Only(Protocol::Udp)),
        "SCTP" => Some(Transport::Only(Protocol::Sctp)),
        other if OTHERS.contains(&other) => None,
        other => return malformed(format!("protocol {other:?}")),
    };
    let written = text(value, "port")?.ok_or_else(|| Malformed("port is missing".to_owned()))?;
    let end = port(value, "endPort")?.filter(|end| *end > 0);
    let term = match written.parse::<u16>() {
        Ok(0) if end.is_some() => return malformed("endPort beside port 0"),
        Ok(0) => PortTerm::Numbers(0, u16::MAX),
        Ok(number) => builder.port_range(number, end, true)?,
        Err(_) if is_port_name(written) => PortTerm::Named(builder.name(&written.to_ascii_lowercase())),
        Err(_) => return malformed(format!("port {written:?}")),
    };
    Ok(transport.map(|transport| (transport, term)))
}
