//! Explicit denies: no allow overrides them, so the policy itself has to change. Enters: the doors that a deny rule keeps
//! closed; leaves: the policy with that rule narrowed so that it spares the job's pods, or without the rule, and an allow
//! where default deny remains: a policy that only denies starts default deny too.

use serde_json::{Map, Value, json};

use super::allow;
use super::gang::{Handle, handles, selectors};
use super::plan::{Action, Plan, Step, StepKind};
use super::verify::apply;
use super::world::{Door, World};
use crate::facts::Namespace;
use crate::object::Object;
use crate::policy::{Closure, Decision, Direction, Peer, PolicyKind, PolicyRef, PolicySet, Question};

/// Policies may hide behind each other (admin policies, in the order of their priority): so often is looked again.
const MOST_ROUNDS: usize = 4;

/// What becomes of a rule that stands in the way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edit {
    /// It spares the job's pods.
    Narrow,
    /// It goes.
    Remove,
}

/// Narrower first.
pub(super) fn plans(before: &World<'_>) -> Vec<Plan> {
    if denying(before).is_empty() {
        return Vec::new();
    }
    [Edit::Narrow, Edit::Remove].into_iter().filter_map(|edit| plan(before, edit)).collect()
}

fn plan(before: &World<'_>, edit: Edit) -> Option<Plan> {
    let everybody: Vec<usize> = (0..before.members.len()).collect();
    let job = handles(before, &everybody);
    let mut steps: Vec<Step> = Vec::new();
    let mut names = Vec::new();
    let mut world = before.with(before.objects.clone());
    for _ in 0..MOST_ROUNDS {
        let policies = denying(&world);
        if policies.is_empty() {
            break;
        }
        let mut round = Vec::new();
        for policy in policies {
            let object = world.objects.iter().find(|object| is(object, &policy))?;
            let action = edited(&world, object, &policy, edit, job.as_deref())?;
            names.push(policy.to_string());
            round.push(Step { kind: StepKind::EditDeny, action });
        }
        world = apply(&world, &round);
        steps.extend(round);
    }
    let mut needs = Vec::new();
    let mut summary = match edit {
        Edit::Narrow => format!("make {} spare the pods of the job", names.join(" and ")),
        Edit::Remove => format!(
            "take the rule that denies the traffic out of {}, for every pod it selects, not this job alone",
            names.join(" and ")
        ),
    };
    if let Some(more) = allow::plan(&world) {
        summary = format!("{summary}, and {}", more.summary);
        needs.extend(more.needs);
        steps.extend(more.steps);
    }
    Some(Plan { summary, needs, steps })
}

/// The policies with a deny that matches somewhere.
fn denying(world: &World<'_>) -> Vec<PolicyRef> {
    let decisions = world.closed().flat_map(|door| [&door.egress, &door.ingress]);
    let mut found: Vec<PolicyRef> = decisions
        .filter_map(|decision| match decision {
            Decision::Closed(Closure { denied_by, .. }) => Some(denied_by.clone()),
            Decision::Open { .. } | Decision::Unknown { .. } => None,
        })
        .flatten()
        .collect();
    found.sort();
    found.dedup();
    found
}

fn is(object: &Object, policy: &PolicyRef) -> bool {
    let namespace = object.namespace().or(policy.namespace.as_deref().filter(|n| *n == "default"));
    object.kind() == policy.kind.as_str()
        && object.name() == policy.name
        && namespace == policy.namespace.as_deref()
}

fn edited(
    world: &World<'_>,
    object: &Object,
    policy: &PolicyRef,
    edit: Edit,
    job: Option<&[Handle]>,
) -> Option<Action> {
    match policy.kind {
        PolicyKind::CiliumNetworkPolicy | PolicyKind::CiliumClusterwideNetworkPolicy => {
            cilium(world, object, policy, edit, job)
        }
        PolicyKind::AdminNetworkPolicy | PolicyKind::BaselineAdminNetworkPolicy => {
            admin(world, object, policy, edit, job)
        }
        PolicyKind::NetworkPolicy => None,
    }
}

/// Whether this object alone would deny one of the closed doors.
fn denies(world: &World<'_>, object: &Object, direction: Direction) -> bool {
    let namespaces: Vec<Namespace> = world.objects.iter().filter_map(Namespace::from_object).collect();
    let services = world.objects.iter().filter(|object| object.kind() == "Service");
    let set = PolicySet::from_objects(services.chain([object]), &namespaces, world.situation.policy_settings);
    let denies = |door: &Door| {
        let (src, dst) = ends(world, door)?;
        let answer = set.evaluate(&Question { src, dst, protocol: door.protocol, ports: door.ports });
        let decision = match direction {
            Direction::Egress => answer.egress,
            Direction::Ingress => answer.ingress,
        };
        match decision {
            Decision::Closed(closure) => Some(!closure.denied_by.is_empty()),
            Decision::Unknown { .. } => Some(true),
            Decision::Open { .. } => Some(false),
        }
    };
    world.closed().any(|door| denies(door).unwrap_or(false))
}

fn ends<'w>(world: &'w World<'_>, door: &Door) -> Option<(Peer<'w>, Peer<'w>)> {
    use super::world::Far;
    use crate::policy::Entity;
    let src = *world.groups.get(door.src)?.first()?;
    let dst = match door.dst {
        Far::Members(group) => {
            let group = world.groups.get(group)?;
            Peer::Pod(world.members.get(*group.iter().find(|member| **member != src)?)?)
        }
        Far::Dns(server) => Peer::Pod(world.dns.get(server)?),
        Far::Api(ip) => Peer::Entity(Entity::KubeApiserver, Some(ip)),
    };
    Some((Peer::Pod(world.members.get(src)?), dst))
}

const CILIUM_SECTIONS: [(&str, &str, Direction); 2] =
    [("ingressDeny", "fromEndpoints", Direction::Ingress), ("egressDeny", "toEndpoints", Direction::Egress)];

fn cilium(
    world: &World<'_>,
    object: &Object,
    policy: &PolicyRef,
    edit: Edit,
    job: Option<&[Handle]>,
) -> Option<Action> {
    let spec = object.value().get("spec").filter(|spec| spec.is_object());
    let specs: Vec<&Value> = object.items("/specs").collect();
    let alone = |spec: &Value| {
        let mut tree = object.value().clone();
        let fields = tree.as_object_mut()?;
        fields.remove("specs");
        fields.insert("spec".to_owned(), spec.clone());
        Object::from_value(tree).ok()
    };
    let new_spec = match spec {
        Some(spec) => Some((spec, cilium_spec(world, spec, policy, edit, job, &alone)?)),
        None => None,
    };
    let mut new_specs: Vec<Value> = Vec::new();
    for spec in &specs {
        new_specs.push(cilium_spec(world, spec, policy, edit, job, &alone)?);
    }
    let lives = |spec: &Value| {
        ["ingress", "egress", "ingressDeny", "egressDeny"]
            .iter()
            .any(|section| spec.get(section).and_then(Value::as_array).is_some_and(|rules| !rules.is_empty()))
    };
    // Cilium rejects a policy without rules.
    if !new_spec.iter().map(|(_, spec)| spec).chain(&new_specs).any(lives) {
        return Some(Action::Delete(object.clone()));
    }
    let mut patch = Map::new();
    if let Some((old, new)) = new_spec {
        match lives(&new) {
            true => patch.extend(difference(old, &new).map(|spec| ("spec".to_owned(), spec))),
            false => {
                patch.insert("spec".to_owned(), Value::Null);
            }
        }
    }
    let changed = specs.iter().zip(&new_specs).any(|(old, new)| *old != new);
    if changed {
        new_specs.retain(lives);
        let list = if new_specs.is_empty() { Value::Null } else { Value::Array(new_specs) };
        patch.insert("specs".to_owned(), list);
    }
    (!patch.is_empty()).then(|| Action::Merge(object.clone(), Value::Object(patch)))
}

/// A merge patch of the deny sections from one spec to another.
fn difference(old: &Value, new: &Value) -> Option<Value> {
    let mut patch = Map::new();
    for (section, ..) in CILIUM_SECTIONS {
        if old.get(section) != new.get(section) {
            patch.insert(section.to_owned(), new.get(section).cloned().unwrap_or(Value::Null));
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// A spec whose denies no longer stand in the way. `None` when a rule that does cannot be narrowed.
fn cilium_spec(
    world: &World<'_>,
    spec: &Value,
    policy: &PolicyRef,
    edit: Edit,
    job: Option<&[Handle]>,
    alone: &dyn Fn(&Value) -> Option<Object>,
) -> Option<Value> {
    let mut changed = spec.clone();
    for (section, peers, direction) in CILIUM_SECTIONS {
        let Some(rules) = spec.get(section).and_then(Value::as_array) else { continue };
        let mut kept = Vec::new();
        for rule in rules {
            let mut only = spec.clone();
            let fields = only.as_object_mut()?;
            for name in ["ingress", "egress", "ingressDeny", "egressDeny"] {
                fields.remove(name);
            }
            fields.insert(section.to_owned(), json!([rule]));
            if !denies(world, &alone(&only)?, direction) {
                kept.push(rule.clone());
            } else if edit == Edit::Narrow {
                kept.push(spared(rule, peers, policy, job?, world.namespace())?);
            }
        }
        let fields = changed.as_object_mut()?;
        if kept.is_empty() {
            fields.remove(section);
        } else {
            fields.insert(section.to_owned(), Value::Array(kept));
        }
    }
    Some(changed)
}

/// The rule with peers that are not of the job. `NotIn` also means pods without the label, so the rule still denies
/// everybody else; in a clusterwide policy the namespaces are left to the label.
fn spared(rule: &Value, peers: &str, policy: &PolicyRef, job: &[Handle], namespace: &str) -> Option<Value> {
    let [job] = job else { return None };
    let [(key, values)] = job.labels.as_slice() else { return None };
    let one_namespace = policy.namespace.as_deref() == Some(namespace);
    if !one_namespace || job.strangers > 0 {
        return None;
    }
    let selectors = rule.get(peers)?.as_array()?;
    let mut changed = Vec::new();
    for selector in selectors {
        let mut selector = selector.as_object()?.clone();
        let mut expressions = match selector.get("matchExpressions") {
            Some(expressions) => expressions.as_array()?.clone(),
            None => Vec::new(),
        };
        expressions.push(json!({"key": key, "operator": "NotIn", "values": values}));
        selector.insert("matchExpressions".to_owned(), Value::Array(expressions));
        changed.push(Value::Object(selector));
    }
    let mut rule = rule.as_object()?.clone();
    rule.insert(peers.to_owned(), Value::Array(changed));
    Some(Value::Object(rule))
}

/// Rules of admin policies are looked at in order, the first that matches counts: a rule before the deny spares the
/// job's pods, and with `Pass` leaves them to the policies of their namespace.
fn admin(
    world: &World<'_>,
    object: &Object,
    policy: &PolicyRef,
    edit: Edit,
    job: Option<&[Handle]>,
) -> Option<Action> {
    let mut patch = Map::new();
    for (section, side, direction) in
        [("ingress", "from", Direction::Ingress), ("egress", "to", Direction::Egress)]
    {
        let Some(rules) = object.value().pointer(&format!("/spec/{section}")).and_then(Value::as_array)
        else {
            continue;
        };
        let mut changed = Vec::new();
        let mut spared = false;
        for rule in rules {
            let is_deny = rule.get("action").and_then(Value::as_str) == Some("Deny");
            if !is_deny || !denies(world, &with_rule(object, section, rule)?, direction) {
                changed.push(rule.clone());
                continue;
            }
            if edit == Edit::Narrow {
                if !spared {
                    changed.push(exception(world, policy, side, job?));
                }
                changed.push(rule.clone());
            }
            spared = true;
        }
        if spared {
            patch.insert(section.to_owned(), Value::Array(changed));
        }
    }
    (!patch.is_empty()).then(|| Action::Merge(object.clone(), json!({"spec": patch})))
}

fn with_rule(object: &Object, section: &str, rule: &Value) -> Option<Object> {
    let mut tree = object.value().clone();
    let spec = tree.get_mut("spec")?.as_object_mut()?;
    spec.remove("ingress");
    spec.remove("egress");
    spec.insert(section.to_owned(), json!([rule]));
    Object::from_value(tree).ok()
}

fn exception(world: &World<'_>, policy: &PolicyRef, side: &str, job: &[Handle]) -> Value {
    // A baseline policy knows no Pass; nothing comes after it.
    let action = if policy.kind == PolicyKind::AdminNetworkPolicy { "Pass" } else { "Allow" };
    let namespaces = json!({"matchLabels": {"kubernetes.io/metadata.name": world.namespace()}});
    let pods = |selector| json!({"pods": {"namespaceSelector": namespaces, "podSelector": selector}});
    let pods: Vec<Value> = selectors(job).into_iter().map(pods).collect();
    json!({"name": "spare-a-training-job", "action": action, side: pods})
}
