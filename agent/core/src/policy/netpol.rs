//! `networking.k8s.io` NetworkPolicy. Enters: the object; leaves: a [`Policy`] that isolates by selection and only
//! allows (Kubernetes API, `NetworkPolicySpec`).

use serde_json::Value;

use super::answer::{Direction, PolicyRef};
use super::builder::{Builder, is_port_name, port_number, protocol};
use super::field::{Read, items, malformed, network_with_holes, object, port, texts};
use super::identity::Enforcer;
use super::model::Transport;
use super::model::{
    Action, Block, Inside, PeerTerm, Policy, PortMatch, PortTerm, Rule, Section, Subject, Tier,
};
use super::selector::{Requirement, Truth, read_selector};
use crate::object::Object;

/// Compiles an object.
pub(super) fn compile(object: &Object, reference: &PolicyRef, builder: &mut Builder<'_>) -> Read<Policy> {
    let Some(spec) = super::field::object(object.value(), "spec")? else { return malformed("no spec") };
    let subject = subject(spec, reference, builder)?;
    let [ingress, egress] = directions(spec)?;
    Ok(Policy {
        reference: reference.clone(),
        tier: Tier::Namespace,
        subject,
        ingress: section(spec, Direction::Ingress, ingress, reference, builder)?,
        egress: section(spec, Direction::Egress, egress, reference, builder)?,
        unreadable: false,
    })
}

/// Whom an object selects of which something is malformed.
pub(super) fn suspects(object: &Object, reference: &PolicyRef, builder: &mut Builder<'_>) -> Subject {
    let spec = object.value().get("spec").unwrap_or(&Value::Null);
    let everything = Subject::Endpoints(builder.kubernetes(None, None, Some(reference)));
    subject(spec, reference, builder).unwrap_or(everything)
}

fn subject(spec: &Value, reference: &PolicyRef, builder: &mut Builder<'_>) -> Read<Subject> {
    let pods = selector(spec, "podSelector")?;
    Ok(Subject::Endpoints(builder.kubernetes(pods, None, Some(reference))))
}

fn selector(value: &Value, name: &str) -> Read<Option<Vec<Requirement<String>>>> {
    object(value, name)?.map(read_selector).transpose()
}

/// Ingress and egress. Without `policyTypes`: ingress, and egress when there are egress rules.
fn directions(spec: &Value) -> Read<[bool; 2]> {
    let types = texts(items(spec, "policyTypes")?, "policyTypes")?;
    if let Some(odd) = types.iter().find(|name| !["Ingress", "Egress"].contains(name)) {
        return malformed(format!("policyTypes has {odd:?}"));
    }
    match types.is_empty() {
        true => Ok([true, !items(spec, "egress")?.is_empty()]),
        false => Ok([types.contains(&"Ingress"), types.contains(&"Egress")]),
    }
}

/// A direction that `policyTypes` does not name has no effect, whatever rules are written for it.
fn section(
    spec: &Value,
    direction: Direction,
    applies: bool,
    reference: &PolicyRef,
    builder: &mut Builder<'_>,
) -> Read<Section> {
    let peers = match direction {
        Direction::Ingress => "from",
        Direction::Egress => "to",
    };
    let rules = items(spec, direction.as_str())?.iter();
    let rules = rules.map(|value| rule(value, peers, reference, builder)).collect::<Read<Vec<_>>>()?;
    Ok(match applies {
        true => Section { isolates: Truth::Yes, requires: false, rules },
        false => Section::default(),
    })
}

/// Absent or empty peers mean everybody, absent or empty ports all ports.
fn rule(value: &Value, peers: &str, reference: &PolicyRef, builder: &mut Builder<'_>) -> Read<Rule> {
    let peers = match items(value, peers)? {
        [] => vec![PeerTerm::Any],
        peers => peers.iter().map(|v| peer(v, reference, builder)).collect::<Read<Vec<_>>>()?,
    };
    let ports = match items(value, "ports")? {
        [] => PortMatch::All,
        ports => PortMatch::Terms(ports.iter().map(|v| port_term(v, builder)).collect::<Read<Vec<_>>>()?),
    };
    Ok(Rule::new(Action::Allow, peers, ports))
}

fn peer(value: &Value, reference: &PolicyRef, builder: &mut Builder<'_>) -> Read<PeerTerm> {
    let (pods, namespaces) = (selector(value, "podSelector")?, selector(value, "namespaceSelector")?);
    let block = object(value, "ipBlock")?;
    match (block, &pods, &namespaces) {
        (Some(block), None, None) => {
            let (net, holes) = network_with_holes(block)?;
            let inside = if builder.enforcer == Enforcer::Cilium { Inside::Never } else { Inside::Perhaps };
            Ok(PeerTerm::Block(builder.block(Block { net, holes, inside })))
        }
        (Some(_), _, _) => malformed("ipBlock beside a selector in one peer"),
        (None, None, None) => malformed("a peer without ipBlock, podSelector or namespaceSelector"),
        (None, _, Some(_)) => Ok(PeerTerm::Matching(builder.kubernetes(pods, namespaces, None))),
        (None, _, None) => Ok(PeerTerm::Matching(builder.kubernetes(pods, None, Some(reference)))),
    }
}

fn port_term(value: &Value, builder: &mut Builder<'_>) -> Read<(Transport, PortTerm)> {
    let transport = Transport::Only(protocol(value)?);
    let end = port(value, "endPort")?;
    let term = match value.get("port") {
        None | Some(Value::Null) if end.is_none() => PortTerm::Numbers(0, u16::MAX),
        Some(Value::String(name)) if end.is_none() && is_port_name(name) => {
            PortTerm::Named(builder.name(name))
        }
        Some(Value::Number(_)) => {
            let by_cilium = builder.enforcer == Enforcer::Cilium;
            builder.port_range(port_number(value, "port")?, end, by_cilium)?
        }
        _ => {
            return malformed("a port that is neither a number nor a name, or endPort without a port number");
        }
    };
    Ok((transport, term))
}
