//! What is asked for, and what is not.

use firedoor::cluster::{ClusterSettings, Lookup, WhyPartial};

use crate::world::*;
use serde_json::json;

#[tokio::test]
async fn a_job_is_known_with_all_that_it_refers_to() {
    let kube = cluster().await;
    kube.put_all([
        pod("llama", 0, NODE),
        pod("llama", 1, "node-b"),
        pod("other", 0, "node-b"),
        owner("llama"),
    ]);
    kube.put(policy("networking.k8s.io/v1", "NetworkPolicy", Some("ml"), "closed"));
    kube.put(policy("networking.k8s.io/v1", "NetworkPolicy", Some("default"), "elsewhere"));
    kube.put(service("ml", "llama", "10.96.0.9"));
    kube.put(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "coredns-0", "namespace": "kube-system", "uid": "dns", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"nodeName": "node-b", "containers": []}, "status": {"phase": "Running", "podIP": "10.0.0.53"}}));
    let mut followed = Followed::new(&kube, settings());
    let snapshot = followed.until_ready().await;
    let found: Vec<String> = names(&snapshot, None).into_iter().collect();
    let expected = [
        "EndpointSlice/kubernetes",
        "Namespace/default",
        "Namespace/kube-system",
        "Namespace/ml",
        "NetworkPolicy/closed",
        "Node/node-a",
        "Node/node-b",
        "Pod/coredns-0",
        "Pod/llama-worker-0",
        "Pod/llama-worker-1",
        "PyTorchJob/llama",
        "Service/kubernetes",
        "Service/llama",
    ];
    assert_eq!(found, expected);
    assert!(snapshot.partial.is_empty() && snapshot.ended.is_empty(), "{snapshot:?}");
    assert_eq!(snapshot.notes, Vec::<String>::new());
    assert_eq!(snapshot.stale_since, None);
    followed.stop().await;
    kube.until("the watches to close", |log| log.iter().all(|entry| !entry.open)).await;
}

/// 8 pods of 3 jobs here, each job with 8 more on another node, and all five kinds of policies served.
async fn eight_pods_of_three_jobs(others: u32) -> crate::kube::FakeKube {
    let kube = cluster().await;
    kube.serve_all_policies();
    let here = [("a", 3), ("bb", 3), ("ccc", 2)];
    for (job, count) in here {
        kube.put_all((0..count).map(|index| pod(job, index, NODE)));
        kube.put_all((count..count + 8).map(|index| pod(job, index, "node-b")));
        kube.put(owner(job));
    }
    kube.put(policy("networking.k8s.io/v1", "NetworkPolicy", Some("ml"), "closed"));
    kube.put(policy("cilium.io/v2", "CiliumNetworkPolicy", Some("ml"), "closed"));
    kube.put(policy("cilium.io/v2", "CiliumClusterwideNetworkPolicy", None, "wide"));
    kube.put(policy("policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy", None, "admin"));
    kube.put_all((0..others).map(|index| other_pod(index, &format!("other-{}", index % 500))));
    kube.put_all((0..others / 10).map(|index| {
        let mut job = pod("elsewhere", index, "node-c");
        job["metadata"]["namespace"] = json!("research");
        job
    }));
    kube
}

/// Requests by verb and resource, and all bytes, of a node that has just begun.
async fn cost(others: u32) -> (Vec<(String, usize)>, u64, Vec<String>) {
    let kube = eight_pods_of_three_jobs(others).await;
    // Nothing is asked twice while this is counted.
    let recheck = ClusterSettings::default().recheck;
    let mut followed = Followed::new(&kube, ClusterSettings { recheck, ..settings() });
    let snapshot = followed.until_ready().await;
    assert_eq!(names(&snapshot, Some("Pod")).len(), 8 + 24);
    assert!(snapshot.partial.is_empty(), "{:?}", snapshot.partial);
    // A watch is opened after its list has been taken in.
    let log = kube
        .until("every list that goes on to be watched", |log| {
            log.iter().filter(|entry| entry.open).count() as u64 == snapshot.requests.watching
        })
        .await;
    let mut requests = std::collections::BTreeMap::<String, usize>::new();
    for entry in &log {
        *requests.entry(format!("{} {}", entry.verb, entry.resource)).or_default() += 1;
    }
    let mut open = kube.open_watches();
    for watch in &mut open {
        watch.truncate(watch.find("watch=true").unwrap_or(watch.len()));
    }
    open.sort();
    followed.stop().await;
    (requests.into_iter().collect(), log.iter().map(|entry| entry.bytes).sum(), open)
}

#[tokio::test]
async fn a_node_costs_the_same_in_a_cluster_of_any_size() {
    let (few, few_bytes, open) = cost(0).await;
    let (many, many_bytes, _) = cost(10_000).await;
    assert_eq!(few, many);
    assert!(many_bytes.abs_diff(few_bytes) < few_bytes / 50, "{few_bytes} and {many_bytes} bytes");
    // 1 + jobs here + kinds of policies x (namespaces, or 1) + 1.
    let expected = [
        "/api/v1/namespaces/ml/pods?labelSelector=training.kubeflow.org%2Fjob-name%3Da&",
        "/api/v1/namespaces/ml/pods?labelSelector=training.kubeflow.org%2Fjob-name%3Dbb&",
        "/api/v1/namespaces/ml/pods?labelSelector=training.kubeflow.org%2Fjob-name%3Dccc&",
        "/api/v1/namespaces?",
        "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-a&",
        "/apis/cilium.io/v2/ciliumclusterwidenetworkpolicies?",
        "/apis/cilium.io/v2/namespaces/ml/ciliumnetworkpolicies?",
        "/apis/networking.k8s.io/v1/namespaces/ml/networkpolicies?",
        "/apis/policy.networking.k8s.io/v1alpha1/adminnetworkpolicies?",
        "/apis/policy.networking.k8s.io/v1alpha1/baselineadminnetworkpolicies?",
    ];
    assert_eq!(open, expected);
    let counted = |what: &str| many.iter().find(|(name, _)| name == what).map_or(0, |(_, count)| *count);
    assert_eq!(many.iter().map(|(_, count)| count).sum::<usize>(), 35, "{many:?}");
    assert_eq!(counted("watch pods"), 4);
    assert_eq!(counted("list pods"), 4 + 1, "a page for each watch, and the name servers");
    assert_eq!(counted("get nodes"), 2);
    assert_eq!(counted("get pytorchjobs"), 3);
    assert_eq!(counted("list services"), 2, "those of ml, and the name service");
}

#[tokio::test]
async fn a_job_of_ten_thousand_pods_stays_where_it_is() {
    let kube = cluster().await;
    kube.put_all([
        pod("huge", 0, NODE),
        pod("huge", 1, NODE),
        pod("small", 0, NODE),
        pod("small", 1, "node-b"),
    ]);
    kube.put_all((2..10_000).map(|index| pod("huge", index, "node-b")));
    kube.put_all([owner("huge"), owner("small")]);
    let mut followed = Followed::new(&kube, settings());
    let snapshot = followed.until_ready().await;
    let pods = ["huge-worker-0", "huge-worker-1", "small-worker-0", "small-worker-1"];
    assert_eq!(names(&snapshot, Some("Pod")).into_iter().collect::<Vec<_>>(), pods);
    assert_eq!(snapshot.partial.len(), 1);
    assert_eq!((snapshot.partial[0].why, snapshot.partial[0].local.len()), (WhyPartial::TooLarge, 2));
    let sent = |kube: &crate::kube::FakeKube| kube.log().iter().map(|entry| entry.objects).sum::<u64>();
    assert!(sent(&kube) < 600, "{} objects", sent(&kube));
    assert!(!kube.open_watches().iter().any(|watch| watch.contains("huge")), "{:?}", kube.open_watches());

    // It churns, and this node hears nothing of it.
    kube.put_all((10_000..12_000).map(|index| pod("huge", index, "node-b")));
    // Peers that are observed are looked up, once.
    for index in [7, 9_999, 7, 7] {
        let ip = pod("huge", index, "node-b")["status"]["podIP"].as_str().unwrap().parse().unwrap();
        followed.lookups.send(Lookup { namespace: None, ip, pod: None }).await.unwrap();
    }
    let by_name = Lookup {
        namespace: Some("ml".to_owned()),
        ip: "10.9.9.9".parse().unwrap(),
        pod: Some("huge-worker-42".to_owned()),
    };
    followed.lookups.send(by_name).await.unwrap();
    let nobody = |ip: &str, namespace: Option<&str>| Lookup {
        namespace: namespace.map(str::to_owned),
        ip: ip.parse().unwrap(),
        pod: None,
    };
    for _ in 0..20 {
        followed.lookups.send(nobody("203.0.113.7", None)).await.unwrap();
        followed.lookups.send(nobody("203.0.113.8", Some("elsewhere"))).await.unwrap();
    }
    let found = followed
        .until("the peers", |snapshot| {
            ["huge-worker-7", "huge-worker-9999", "huge-worker-42"].iter().all(|name| lives(snapshot, name))
        })
        .await;
    assert_eq!(names(&found, Some("Pod")).len(), 7);
    let log = kube
        .until("the last look-up", |log| {
            log.iter().any(|e| e.query.contains("203.0.113.7") && e.status == 200)
        })
        .await;
    let asked = |what: &str| {
        log.iter().filter(|entry| entry.query.contains(what) || entry.path.contains(what)).count()
    };
    assert_eq!((asked("podIP%3D203.0.113.7"), asked("podIP%3D203.0.113.8"), asked("elsewhere")), (1, 0, 0));
    assert_eq!((asked("pods/huge-worker-42"), asked("podIP")), (1, 3));
    assert!(sent(&kube) < 610, "{} objects", sent(&kube));
    followed.stop().await;
}

#[tokio::test]
async fn a_job_that_grows_too_large_is_let_go() {
    let kube = cluster().await;
    kube.put_all((0..10).map(|index| pod("llama", index, if index == 0 { NODE } else { "node-b" })));
    let mut followed = Followed::new(&kube, ClusterSettings { max_members: 12, ..settings() });
    let snapshot = followed.until_ready().await;
    assert_eq!((names(&snapshot, Some("Pod")).len(), snapshot.partial.len()), (10, 0));
    kube.put_all((10..13).map(|index| pod("llama", index, "node-b")));
    let snapshot = followed.until("the job to be let go", |snapshot| !snapshot.partial.is_empty()).await;
    assert_eq!(snapshot.partial[0].why, WhyPartial::TooLarge);
    assert_eq!(names(&snapshot, Some("Pod")).into_iter().collect::<Vec<_>>(), ["llama-worker-0"]);
    kube.until("its watch to close", |log| {
        !log.iter().any(|entry| entry.open && entry.query.contains("llama"))
    })
    .await;
    followed.stop().await;
}

#[tokio::test]
async fn the_last_pod_takes_along_what_only_its_job_needed() {
    let kube = cluster().await;
    kube.put_all([
        pod("llama", 0, NODE),
        pod("llama", 1, "node-b"),
        pod("bert", 0, NODE),
        pod("bert", 1, "node-b"),
    ]);
    let mut alone = pod("alone", 0, NODE);
    alone["metadata"]["namespace"] = json!("research");
    kube.put_all([alone, namespace("research"), owner("llama"), owner("bert")]);
    kube.put(policy("networking.k8s.io/v1", "NetworkPolicy", Some("research"), "closed"));
    let mut followed = Followed::new(&kube, settings());
    let snapshot = followed.until_ready().await;
    assert!(names(&snapshot, None).contains("NetworkPolicy/closed"));
    assert_eq!(snapshot.requests.watching, 1 + 3 + 2 + 1);

    kube.delete("pods", "research", "alone-worker-0");
    // One job's pod here only finishes; its other pod goes on elsewhere.
    let mut finished = pod("bert", 0, NODE);
    finished["status"]["phase"] = json!("Succeeded");
    finished["status"]["containerStatuses"] =
        json!([{"state": {"terminated": {"finishedAt": "2026-11-01T10:00:00Z"}}}]);
    kube.put(finished);
    let snapshot =
        followed.until("two jobs to leave", |snapshot| snapshot.requests.watching == 1 + 1 + 1 + 1).await;
    assert!(!names(&snapshot, None).contains("NetworkPolicy/closed"));
    assert!(!names(&snapshot, None).contains("Pod/bert-worker-1"), "nobody here talks to it");
    assert!(snapshot.ended.contains_key("uid-alone-worker-0"), "what ended is remembered");
    kube.until("their watches to close", |log| log.iter().filter(|entry| entry.open).count() == 4).await;

    kube.delete("pods", "ml", "llama-worker-0");
    let snapshot = followed.until("the last job to leave", |snapshot| snapshot.requests.watching == 1).await;
    let names = names(&snapshot, None);
    let of_kind = |kind: &str| names.iter().filter(|name| name.starts_with(kind)).collect::<Vec<_>>();
    assert_eq!(of_kind("Node/"), [&format!("Node/{NODE}")], "only its own");
    assert!(of_kind("PyTorchJob/").is_empty());
    kube.until("all but one watch to close", |log| log.iter().filter(|entry| entry.open).count() == 1).await;
    followed.stop().await;
}

#[tokio::test]
async fn jobs_that_share_no_label_are_known_by_their_owners() {
    let kube = cluster().await;
    kube.serve("example.com/v1", "FooJob", "foojobs", true);
    let custom = |name: &str, node: &str, ip: &str| {
        let mut pod = pod("foo", 0, node);
        pod["metadata"] = json!({"name": name, "namespace": "ml", "uid": format!("uid-{name}"),
            "ownerReferences": [{"apiVersion": "example.com/v1", "kind": "FooJob", "name": "foo", "uid": "uid-foo", "controller": true}]});
        pod["status"] = json!({"phase": "Running", "podIP": ip});
        pod
    };
    kube.put_all([custom("foo-x", NODE, "10.0.7.1"), custom("foo-y", "node-b", "10.0.7.2")]);
    kube.put(json!({"apiVersion": "example.com/v1", "kind": "FooJob", "metadata": {"name": "foo", "namespace": "ml", "uid": "uid-foo"}, "spec": {}}));
    let mut followed = Followed::new(&kube, settings());
    let snapshot = followed.until_ready().await;
    assert_eq!(snapshot.partial[0].why, WhyPartial::NoSharedLabel);
    assert!(names(&snapshot, None).contains("FooJob/foo"));
    assert_eq!(snapshot.requests.watching, 3, "own pods, network policies, namespaces");
    followed
        .lookups
        .send(Lookup { namespace: None, ip: "10.0.7.2".parse().unwrap(), pod: None })
        .await
        .unwrap();
    let snapshot = followed.until("its other pod", |snapshot| lives(snapshot, "foo-y")).await;
    let inventory = firedoor_core::inventory::Inventory::new(snapshot.objects.clone(), &settings().grouping);
    assert_eq!(inventory.jobs().map(|(_, job)| job.members.len()).collect::<Vec<_>>(), [2]);
    followed.stop().await;
}

#[tokio::test]
async fn owners_are_followed_to_the_object_that_a_person_edits() {
    let kube = cluster().await;
    kube.serve("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", true);
    kube.serve("trainer.kubeflow.org/v1alpha1", "TrainJob", "trainjobs", true);
    kube.serve("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", "clustertrainingruntimes", false);
    let owned = |api_version: &str, kind: &str, name: &str, above: Option<(&str, &str, &str)>| {
        let owners: Vec<_> = above.iter().map(|(version, kind, name)| json!({"apiVersion": version, "kind": kind, "name": name, "uid": format!("uid-{kind}-{name}"), "controller": true})).collect();
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "ml", "uid": format!("uid-{kind}-{name}"), "ownerReferences": owners}, "spec": {}})
    };
    let trainer = "trainer.kubeflow.org/v1alpha1";
    // The reference was written when the JobSet API had another version.
    kube.put(owned("batch/v1", "Job", "t-node-0", Some(("jobset.x-k8s.io/v1alpha1", "JobSet", "t"))));
    kube.put(owned("jobset.x-k8s.io/v1alpha2", "JobSet", "t", Some((trainer, "TrainJob", "t"))));
    let mut train_job = owned(trainer, "TrainJob", "t", None);
    train_job["spec"] = json!({"runtimeRef": {"name": "torch", "kind": "ClusterTrainingRuntime"}});
    kube.put(train_job);
    kube.put(json!({"apiVersion": trainer, "kind": "ClusterTrainingRuntime", "metadata": {"name": "torch"}, "spec": {}}));
    for (index, node) in [(0, NODE), (1, "node-b")] {
        let mut member = pod("t", index, node);
        member["metadata"]["labels"] = json!({"jobset.sigs.k8s.io/jobset-name": "t", "batch.kubernetes.io/job-name": "t-node-0",
            "batch.kubernetes.io/job-completion-index": index.to_string()});
        member["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "t-node-0", "uid": "uid-Job-t-node-0", "controller": true}]);
        kube.put(member);
    }
    let mut followed = Followed::new(&kube, settings());
    let snapshot = followed
        .until("all owners", |snapshot| names(snapshot, None).contains("ClusterTrainingRuntime/torch"))
        .await;
    for kind in ["Job/t-node-0", "JobSet/t", "TrainJob/t"] {
        assert!(names(&snapshot, None).contains(kind), "{kind}");
    }
    let inventory = firedoor_core::inventory::Inventory::new(snapshot.objects.clone(), &settings().grouping);
    let job = inventory.jobs().next().unwrap().1;
    assert_eq!(
        (job.id.kind.as_str(), job.id.uid.as_deref(), job.members.len()),
        ("TrainJob", Some("uid-TrainJob-t"), 2)
    );
    followed.stop().await;
}

#[tokio::test]
async fn policies_that_come_with_a_new_kind_are_found() {
    let kube = cluster().await;
    kube.put_all([pod("llama", 0, NODE), owner("llama")]);
    let mut followed = Followed::new(&kube, settings());
    followed.until_ready().await;
    kube.serve_all_policies();
    kube.put(policy("cilium.io/v2", "CiliumNetworkPolicy", Some("ml"), "late"));
    followed.until("the policy", |snapshot| names(snapshot, None).contains("CiliumNetworkPolicy/late")).await;
    followed.stop().await;
}
