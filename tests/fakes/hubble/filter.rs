//! Cilium's filters, as far as they are asked for: values of one field are alternatives, fields must all match, filters of
//! a list are alternatives, the blacklist takes away from the whitelist.

use firedoor_proto::flow::{Endpoint, Flow, FlowFilter};
use firedoor_proto::observer::get_flows_response::ResponseTypes;
use firedoor_proto::observer::{GetFlowsRequest, GetFlowsResponse};

/// Whether an event is sent. Lost events pass all filters.
pub(crate) fn passes(request: &GetFlowsRequest, event: &GetFlowsResponse) -> bool {
    let Some(ResponseTypes::Flow(flow)) = &event.response_types else { return true };
    let any = |filters: &[FlowFilter]| filters.iter().any(|filter| matches(filter, flow));
    (request.whitelist.is_empty() || any(&request.whitelist)) && !any(&request.blacklist)
}

fn matches(filter: &FlowFilter, flow: &Flow) -> bool {
    let ip = flow.ip.as_ref();
    let field = |values: &[String], matches: &dyn Fn(&str) -> bool| {
        values.is_empty() || values.iter().any(|value| matches(value))
    };
    field(&filter.source_pod, &|value| pod(value, flow.source.as_ref()))
        && field(&filter.destination_pod, &|value| pod(value, flow.destination.as_ref()))
        && field(&filter.source_ip, &|value| ip.is_some_and(|ip| ip.source == value))
        && field(&filter.destination_ip, &|value| ip.is_some_and(|ip| ip.destination == value))
        && (filter.verdict.is_empty() || filter.verdict.contains(&flow.verdict))
}

/// `namespace/prefix`, `namespace/`, `/prefix` or `prefix`.
fn pod(value: &str, endpoint: Option<&Endpoint>) -> bool {
    let Some(endpoint) = endpoint.filter(|endpoint| !endpoint.pod_name.is_empty()) else { return false };
    let (namespace, prefix) = value.split_once('/').unwrap_or(("", value));
    (namespace.is_empty() || namespace == endpoint.namespace) && endpoint.pod_name.starts_with(prefix)
}
