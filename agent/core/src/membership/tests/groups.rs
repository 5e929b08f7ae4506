//! Configured groups, pod groups, and the suggestion of a group.

use super::*;

fn grouping(keys: &[&str]) -> Grouping {
    Grouping { group_by: keys.iter().map(|key| (*key).to_owned()).collect(), ..Grouping::default() }
}

/// A coordinator from a Deployment and two workers from a Job, joined by nothing but `app`.
fn mixed() -> (Vec<Pod>, Vec<Object>) {
    let pods = vec![
        pod(
            "lead-1",
            &json!({"app": "train", "role": "coordinator", "pod-template-hash": "1"}),
            &by("apps/v1", "ReplicaSet", "lead-rs", "rs"),
        ),
        pod(
            "work-a",
            &json!({"app": "train", "role": "gpu-worker", "batch.kubernetes.io/job-completion-index": "0"}),
            &by("batch/v1", "Job", "work", "j"),
        ),
        pod(
            "work-b",
            &json!({"app": "train", "batch.kubernetes.io/job-completion-index": "1"}),
            &by("batch/v1", "Job", "work", "j"),
        ),
    ];
    let objects = vec![
        object(
            "apps/v1",
            "ReplicaSet",
            "lead-rs",
            "rs",
            &by("apps/v1", "Deployment", "lead", "d"),
            &json!({}),
        ),
        object("apps/v1", "Deployment", "lead", "d", &none(), &json!({})),
        object("batch/v1", "Job", "work", "j", &none(), &json!({})),
    ];
    (pods, objects)
}

#[test]
fn group_by_comes_before_owners() {
    let (pods, objects) = mixed();
    let jobs = Jobs::resolve(&pods, &objects, &grouping(&["team", "app"]));
    assert_eq!(lines(&jobs, &pods), ["Group train -: lead-1=coordinator/- work-a=worker/0 work-b=worker/1"]);
    let job = &jobs.jobs[0];
    assert_eq!((job.group.clone(), job.top.clone()), (Some(("app".to_owned(), "train".to_owned())), None));
    let tops: Vec<&str> = (0..3).map(|pod| jobs.top_of(pod).unwrap().name.as_str()).collect();
    assert_eq!(tops, ["lead", "work", "work"]);
    // Unconfigured, only the Job is a gang.
    assert_eq!(lines(&resolve(&pods, &objects), &pods), ["Job work j: work-a=coordinator/0 work-b=worker/1"]);
}

#[test]
fn groups_stay_apart() {
    let mut pods = vec![
        pod("a", &json!({"app": "x"}), &none()),
        pod("b", &json!({"team": "x"}), &none()),
        pod("c", &json!({"app": ""}), &none()),
        pod("d", &json!({"app": "x", "team": "y"}), &none()),
        pod("e", &json!({"app": "x"}), &none()),
    ];
    pods[4].namespace = "other".to_owned();
    let jobs = Jobs::resolve(&pods, &[], &grouping(&["app", "team"]));
    assert_eq!(lines(&jobs, &pods), ["Group team=x -: b=-/-", "Group x -: a=-/- d=-/-", "Group x -: e=-/-"]);
}

#[test]
fn role_labels_are_configurable_and_must_tell_members_apart() {
    let (mut pods, objects) = mixed();
    let mut named = grouping(&["app"]);
    named.role_labels = vec!["part".to_owned()];
    for (pod, part) in pods.iter_mut().zip(["ps-0", "chief", "node"]) {
        pod.labels.insert("part".to_owned(), part.to_owned());
    }
    let jobs = Jobs::resolve(&pods, &objects, &named);
    assert_eq!(lines(&jobs, &pods), ["Group train -: lead-1=ps/- work-a=coordinator/0 work-b=worker/1"]);
    for pod in &mut pods {
        pod.labels.insert("part".to_owned(), "launcher".to_owned());
    }
    let jobs = Jobs::resolve(&pods, &objects, &named);
    assert_eq!(lines(&jobs, &pods), ["Group train -: lead-1=-/- work-a=-/0 work-b=-/1"]);
}

#[test]
fn a_stateful_set_joined_by_a_label_is_numbered() {
    let owner = by("apps/v1", "StatefulSet", "s", "s");
    let marks = |index: &str| json!({"app": "s", "apps.kubernetes.io/pod-index": index});
    let pods = [pod("s-0", &marks("0"), &owner), pod("s-1", &marks("1"), &owner)];
    let jobs = Jobs::resolve(&pods, &[], &grouping(&["app"]));
    assert_eq!(lines(&jobs, &pods), ["Group s -: s-0=coordinator/0 s-1=worker/1"]);
}

#[test]
fn ranks_from_the_environment() {
    let mut pods = vec![
        pod("n0", &json!({"scheduling.x-k8s.io/pod-group": "g"}), &none()),
        pod("n1", &json!({"scheduling.x-k8s.io/pod-group": "g"}), &none()),
    ];
    for (pod, rank) in pods.iter_mut().zip(["0", "1"]) {
        pod.env.insert("NODE_RANK".to_owned(), rank.to_owned());
    }
    assert_eq!(lines(&resolve(&pods, &[]), &pods), ["PodGroup g -: n0=coordinator/0 n1=worker/1"]);
}

#[test]
fn pod_groups_of_gang_schedulers() {
    let group = |api: &str, name: &str, members: u32| {
        object(api, "PodGroup", name, name, &none(), &json!({"minMember": members}))
    };
    let volcano = |name: &str| {
        annotated(name, &json!({}), &json!({"scheduling.k8s.io/group-name": "podgroup-1"}), &none())
    };
    let kai =
        |name: &str, owners: &Value| annotated(name, &json!({}), &json!({"pod-group-name": "pg-a"}), owners);
    let stateful = by("apps/v1", "StatefulSet", "s", "s");
    let cases = [
        (volcano("p"), Some(group("scheduling.volcano.sh/v1beta1", "podgroup-1", 2)), true),
        (volcano("p"), Some(group("scheduling.volcano.sh/v1beta1", "podgroup-1", 1)), false),
        (volcano("p"), None, false),
        (kai("p", &none()), None, true),
        (kai("p", &stateful), None, false),
        (kai("p", &stateful), Some(group("scheduling.run.ai/v2alpha2", "pg-a", 4)), true),
        (pod("p", &json!({"kueue.x-k8s.io/pod-group-name": "k"}), &stateful), None, true),
        (
            pod(
                "p",
                &json!({"scheduling.x-k8s.io/pod-group": "c"}),
                &by("argoproj.io/v1alpha1", "Workflow", "w", "w"),
            ),
            None,
            true,
        ),
    ];
    for (pod, object, gang) in cases {
        let objects: Vec<Object> = object.into_iter().collect();
        let jobs = resolve(std::slice::from_ref(&pod), &objects);
        assert_eq!(jobs.jobs.len() == 1, gang, "{pod:?}");
        if let (Some(job), Some(object)) = (jobs.jobs.first(), objects.first()) {
            assert_eq!((job.id.kind.clone(), job.id.uid.as_deref()), (JobKind::PodGroup, object.uid()));
        }
    }
    // A better owner wins.
    let owned = [pod("p", &json!({"scheduling.x-k8s.io/pod-group": "c"}), &by("batch/v1", "Job", "j", "j"))];
    assert_eq!(lines(&resolve(&owned, &[]), &owned), ["Job j j: p=-/-"]);
}

#[test]
fn suggestions() {
    let (mut pods, objects) = mixed();
    let jobs = resolve(&pods, &objects);
    let found = suggest_group_by(&pods, &jobs, &[(1, 0), (2, 0)]).unwrap();
    assert_eq!((found.namespace.as_str(), found.key.as_str(), found.value.as_str()), ("ml", "app", "train"));
    // Pods of one job need no group; nor do pairs across namespaces make one.
    assert_eq!(suggest_group_by(&pods, &jobs, &[(1, 2)]), None);
    let mut away = pods.clone();
    away[0].namespace = "other".to_owned();
    assert_eq!(suggest_group_by(&away, &jobs, &[(1, 0), (2, 0)]), None);
    assert_eq!(suggest_group_by(&pods, &jobs, &[(0, 0), (7, 9)]), None);

    for pod in &mut pods {
        pod.labels = Labels::from(
            [("zone", "a"), ("queue-name", "q"), ("run", "r1"), ("org", "x")]
                .map(|(k, v)| (k.to_owned(), v.to_owned())),
        );
    }
    pods.push(pod("other", &json!({"org": "x"}), &none()));
    let jobs = resolve(&pods, &objects);
    // `org` would join a stranger.
    assert_eq!(suggest_group_by(&pods, &jobs, &[(1, 0), (2, 0)]).unwrap().key, "run");
    pods[0].labels.insert("run".to_owned(), "r2".to_owned());
    pods[0].labels.insert("org".to_owned(), "y".to_owned());
    assert_eq!(suggest_group_by(&pods, &jobs, &[(1, 0), (2, 0)]), None);
}
