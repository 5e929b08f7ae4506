//! What a server's version says of what it can do. Enters: the text it tells; leaves: whether a question is understood.

/// The fields of `flow.Flow` that are read, as paths of a `google.protobuf.FieldMask`.
pub(super) const FIELDS: [&str; 21] = [
    "time",
    "verdict",
    "drop_reason",
    "IP",
    "l4",
    "source.identity",
    "source.namespace",
    "source.pod_name",
    "destination.identity",
    "destination.namespace",
    "destination.pod_name",
    "node_name",
    "reply",
    "event_type",
    "traffic_direction",
    "drop_reason_desc",
    "is_reply",
    "uuid",
    "trace_reason",
    "egress_denied_by",
    "ingress_denied_by",
];

/// Whether a server takes a field mask with [`FIELDS`]: Cilium from 1.16 on. Older ones ignore it or know not all of them.
pub(super) fn takes_field_mask(version: &str) -> bool {
    numbers(version).is_some_and(|version| version >= (1, 16))
}

/// Major and minor number: the first digits with a dot between them ("cilium v1.19.4+g4e65", "1.13.0-rc1").
fn numbers(version: &str) -> Option<(u32, u32)> {
    let start = version.find(|c: char| c.is_ascii_digit())?;
    let mut parts = version.get(start..)?.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let digits = minor.find(|c: char| !c.is_ascii_digit()).unwrap_or(minor.len());
    Some((major, minor.get(..digits)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_servers_write_them() {
        assert_eq!(numbers("cilium v1.19.4+g4e656fa4"), Some((1, 19)));
        assert_eq!(numbers("1.13.0-rc1"), Some((1, 13)));
        assert_eq!(numbers("1.21-dev"), Some((1, 21)));
        assert_eq!(numbers("hubble-relay"), None);
        assert!(takes_field_mask("1.16.0") && takes_field_mask("v2.0") && !takes_field_mask("1.15.9"));
    }
}
