//! The evaluator for many pods agrees with one question at a time.

use super::super::selector::{Attribute, Table, Test};
use super::*;

fn pods() -> Vec<Pod> {
    let mut pods = Vec::new();
    for namespace in ["ml", "web", "lost"] {
        for index in 0..9 {
            pods.push(pod(
                &format!("{namespace}/p{index}"),
                &format!("app=a{},zone=z{},index={index}", index % 2, index % 3),
            ));
        }
    }
    pods.extend([host_pod("h1", Some("n1")), host_pod("h2", Some("n2")), host_pod("h3", None)]);
    pods[1].ports.clear();
    pods[2].node = Some("n2".to_owned());
    pods
}

fn policies() -> Vec<Object> {
    vec![
        cnp(
            "a",
            json!({"endpointSelector": {"matchLabels": {"app": "a0"}},
            "ingress": [{"fromEndpoints": [{"matchLabels": {"zone": "z1"}}]}, {"fromEndpoints": [{"matchLabels": {"index": "3"}}]}],
            "egress": [{"toEntities": ["cluster"], "toPorts": [{"ports": [{"port": "rdzv"}]}]}]}),
        ),
        ccnp(
            "b",
            json!({"endpointSelector": {"matchLabels": {"io.cilium.k8s.namespace.labels.team": "web"}},
            "ingressDeny": [{"fromEndpoints": [{"matchLabels": {"zone": "z2"}}]}], "ingress": [{"fromEntities": ["all"]}]}),
        ),
        np(
            "c",
            json!({"podSelector": {"matchLabels": {"app": "a1"}}, "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": 29500, "endPort": 29510}]}]}),
        ),
        anp(
            "d",
            json!({"priority": 1, "subject": {"namespaces": {"matchLabels": {"team": "ml"}}},
            "egress": [{"action": "Deny", "to": [{"networks": ["10.0.0.0/8"]}], "ports": [{"portNumber": {"port": 7}}]}]}),
        ),
    ]
}

/// The answer without the labels that a group has in common.
fn bare(mut answer: Answer) -> Answer {
    for decision in [&mut answer.egress, &mut answer.ingress] {
        if let Decision::Closed(Closure { missing: Some(missing), .. }) = decision {
            for side in [&mut missing.subject, &mut missing.peer] {
                if let Side::Pods { labels, .. } = side {
                    labels.clear();
                }
            }
        }
    }
    answer
}

fn questions(pods: &[Pod]) -> Vec<Question<'_>> {
    let mut peers: Vec<Peer<'_>> = pods.iter().map(Peer::Pod).collect();
    peers.extend([world("1.1.1.1"), Entity::World.into(), Entity::KubeApiserver.into(), Entity::Host.into()]);
    peers.push(Entity::Init.into());
    let mut questions = Vec::new();
    for src in &peers {
        for dst in &peers {
            for ports in [Ports::One(29500), Ports::One(7), Ports::Range(29500, 29511)] {
                questions.push(Question { src: *src, dst: *dst, protocol: Protocol::Tcp, ports });
            }
            questions.push(Question {
                src: *src,
                dst: *dst,
                protocol: Protocol::Udp,
                ports: Ports::One(29500),
            });
        }
    }
    questions
}

#[test]
fn remembered_answers_are_the_same() {
    let (pods, policies) = (pods(), policies());
    for settings in [CILIUM, OTHER, UNKNOWN, Settings { cilium_version: None, ..CILIUM }] {
        let set = set(settings, &policies);
        // The last pod is left out: it is answered without being remembered.
        let known: Vec<&Pod> = pods.iter().take(pods.len() - 1).collect();
        let mut evaluator = Evaluator::new(&set, &known);
        for question in questions(&pods) {
            let (one, many) = (set.evaluate(&question), evaluator.evaluate(&question));
            assert_eq!(many.verdict(), one.verdict());
            assert_eq!(
                (many.egress().verdict(), many.ingress().verdict()),
                (one.egress.verdict(), one.ingress.verdict())
            );
            assert_eq!(bare(evaluator.answer(&many)), bare(one), "{question:?}");
        }
    }
}

#[test]
fn groups_get_the_same_answers() {
    let (pods, policies) = (pods(), policies());
    let set = set(CILIUM, &policies);
    let all: Vec<&Pod> = pods.iter().collect();
    let identities = set.identities(&all);
    let mut seen: Vec<usize> = identities.groups().concat();
    seen.sort_unstable();
    assert_eq!(seen, (0..pods.len()).collect::<Vec<_>>());
    assert!(identities.groups().len() < pods.len());
    let letters_of = |a: usize, b: usize| letters(&set.evaluate(&ask(all[a], all[b], 29500)));
    for group in identities.groups() {
        for (other, _) in all.iter().enumerate() {
            let members: Vec<usize> = group.iter().copied().filter(|member| *member != other).collect();
            for pair in members.windows(2) {
                assert_eq!(letters_of(pair[0], other), letters_of(pair[1], other));
                assert_eq!(letters_of(other, pair[0]), letters_of(other, pair[1]));
            }
        }
    }
}

/// Answers do not depend on it, but a thousand pods against hundreds of policies do.
#[test]
fn selectors_are_indexed_by_what_tells_most() {
    let mut table = Table::default();
    let label = |key: &str| Attribute::PodLabel(key.to_owned());
    let values = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut attribute_of = |requirements: Vec<(Attribute, Test<String>)>| {
        let selector = table.selector(requirements);
        selector.discriminator().map(|(attribute, values)| (attribute, values.len()))
    };
    let two = (label("a"), Test::In(values(&["x", "y"])));
    let one = (label("b"), Test::In(values(&["x"])));
    let namespace = (Attribute::Namespace, Test::In(values(&["ml"])));
    assert_eq!(attribute_of(vec![two.clone()]), Some((0, 2)));
    assert_eq!(attribute_of(vec![two.clone(), one.clone(), namespace]), Some((1, 1)));
    assert_eq!(attribute_of(vec![(label("a"), Test::NotIn(values(&["x"]))), one]), Some((1, 1)));
    let open = [Test::NotIn(values(&["x"])), Test::Exists, Test::Absent].map(|test| (label("a"), test));
    assert_eq!(attribute_of(open.into()), None);
    assert_eq!(attribute_of(Vec::new()), None);
}

#[test]
fn labels_no_policy_names_do_not_divide() {
    let spec = json!({"endpointSelector": {"matchLabels": {"app": "a"}}, "ingress": [{"fromEndpoints": [
        {"matchLabels": {"index": "3"}}]}]});
    let set = set(CILIUM, &[cnp("p", spec)]);
    let mut pods: Vec<Pod> =
        (0..8).map(|i| pod(&format!("ml/p{i}"), &format!("app=a,index={i},uid={i}"))).collect();
    let groups = |pods: &[Pod]| set.identities(&pods.iter().collect::<Vec<_>>()).groups().to_vec();
    assert_eq!(groups(&pods), [vec![0, 1, 2, 4, 5, 6, 7], vec![3]]);
    pods[0].namespace = "web".to_owned();
    pods[1].node = Some("n2".to_owned());
    assert_eq!(groups(&pods), [vec![0], vec![1, 2, 4, 5, 6, 7], vec![3]]);
    pods.push(host_pod("h", Some("n1")));
    assert_eq!(groups(&pods), [vec![0], vec![1], vec![2, 4, 5, 6, 7], vec![3], vec![8]]);
}

#[test]
fn a_missing_allow_names_the_labels_all_pods_of_the_identity_have() {
    let pods: Vec<Pod> = (0..3).map(|i| pod(&format!("ml/p{i}"), &format!("app=a,index={i}"))).collect();
    let set = set(CILIUM, &[cnp("p", json!({"endpointSelector": {}, "ingress": [{}]}))]);
    let all: Vec<&Pod> = pods.iter().collect();
    let mut evaluator = Evaluator::new(&set, &all);
    let answer = evaluator.evaluate(&ask(all[0], all[1], 80));
    let missing = closure(answer.ingress()).missing.clone().unwrap();
    let app = Side::Pods { namespace: "ml".to_owned(), labels: [("app".to_owned(), "a".to_owned())].into() };
    assert_eq!((missing.subject, missing.peer), (app.clone(), app));
}

/// Pods that are alike to the policies which select them, but not to rules, or not in their namespace.
#[test]
fn a_missing_allow_names_the_labels_and_the_namespace_of_its_subject() {
    let spec =
        json!({"endpointSelector": {}, "ingress": [{"fromEndpoints": [{"matchLabels": {"index": "1"}}]}]});
    let set = set(CILIUM, &[ccnp("p", spec)]);
    let pods = [
        pod("ml/p0", "app=a,index=0"),
        pod("ml/p1", "app=a,index=1"),
        pod("web/p2", "app=a,index=2"),
        pod("web/p3", "app=b,index=2"),
    ];
    let all: Vec<&Pod> = pods.iter().collect();
    let mut evaluator = Evaluator::new(&set, &all);
    let mut subject = |dst: usize| {
        let answer = evaluator.evaluate(&ask(all[0], all[dst], 80));
        closure(answer.ingress()).missing.clone().unwrap().subject
    };
    let side = |namespace: &str, labels: &[(&str, &str)]| Side::Pods {
        namespace: namespace.to_owned(),
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
    };
    assert_eq!(subject(1), side("ml", &[("app", "a")]));
    assert_eq!([subject(2), subject(3)], [side("web", &[("index", "2")]), side("web", &[("index", "2")])]);
}

/// A million pairs must not mean a million decisions in memory.
#[test]
fn pairs_of_the_same_identities_share_their_answers() {
    let pods: Vec<Pod> = (0..3).map(|i| pod(&format!("ml/p{i}"), "app=a")).collect();
    let set = set(CILIUM, &[cnp("p", json!({"endpointSelector": {}, "ingress": [{}]}))]);
    let all: Vec<&Pod> = pods.iter().collect();
    let mut evaluator = Evaluator::new(&set, &all);
    let (one, other) =
        (evaluator.evaluate(&ask(all[0], all[1], 80)), evaluator.evaluate(&ask(all[1], all[2], 80)));
    assert!(std::ptr::eq(one.egress(), other.egress()) && std::ptr::eq(one.ingress(), other.ingress()));
}
