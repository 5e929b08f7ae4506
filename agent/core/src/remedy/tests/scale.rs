//! Large jobs and hostile names.

use super::*;

#[test]
fn a_thousand_pods_get_one_remedy() {
    let mut objects = pytorch("gpu-a1", &vec!["gpu-a2"; 999]);
    objects.extend(nodes());
    let unrelated = |n: usize| {
        cnp(
            &format!("p{n}"),
            json!({"endpointSelector": {"matchLabels": {"app": format!("a{n}")}}, "ingress": [{}]}),
        )
    };
    objects.extend((0..200).map(unrelated));
    objects.push(netpol("deny", json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})));
    let cluster = Cluster::new(objects).blocked("llama-worker-0", "llama-master-0", 23456);
    let remedies = cluster.remedies();
    assert_eq!(outline(&remedies), [(vec!["allow-traffic"], true)]);
}

#[test]
fn hostile_names_stay_values() {
    let name = "x: {y}\n- evil: \"true\" # ../../etc";
    let mut objects = pytorch("gpu-a1", &["gpu-a2"]);
    for object in &mut objects {
        if object["kind"] == "Pod" {
            object["metadata"]["labels"]["training.kubeflow.org/job-name"] = json!(name);
            object["metadata"]["ownerReferences"][0]["name"] = json!(name);
        } else {
            object["metadata"]["name"] = json!(name);
        }
    }
    objects.push(netpol("deny", json!({"podSelector": {}, "policyTypes": ["Ingress"]})));
    let remedies = Cluster::new(objects).blocked("llama-worker-0", "llama-master-0", 23456).remedies();
    assert_eq!(outline(&remedies), [(vec!["allow-traffic"], true)]);
    let object = patch(&remedies[0], 0);
    assert_eq!(object["spec"]["podSelector"]["matchLabels"]["training.kubeflow.org/job-name"], name);
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    assert!(object["metadata"]["name"].as_str().unwrap().chars().all(valid), "{object}");
}
