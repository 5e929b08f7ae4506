//! The kernel's own drop reasons by name: `enum skb_drop_reason` (include/net/dropreason-core.h), whose numbers change
//! from version to version. What is normal in the life of a TCP connection is no failure; a closed port shows as
//! `NO_SOCKET`, but the refusal that follows says it better.

use super::DropClass;

/// Kernel reasons are numbered from here by their place in this table.
pub(super) const BASE: u32 = 0x4b00_0000;

macro_rules! kernel_reasons {
    ($($class:ident: $($name:literal)*;)*) => {
        const REASONS: &[(&str, DropClass)] = &[$($(($name, DropClass::$class),)*)*];
    };
}

kernel_reasons! {
    Unknown: "OTHER_KERNEL_REASON";
    Filtered: "NETFILTER_DROP" "TC_INGRESS" "TC_EGRESS" "XDP" "BPF_CGROUP_EGRESS" "SOCKET_FILTER" "TCP_FLAGS_FILTER"
        "TCP_MINTTL" "TC_COOKIE_ERROR" "TC_CHAIN_NOTFOUND" "TC_RECLASSIFY_LOOP"
        "SECURITY_HOOK";
    Authentication: "TCP_MD5NOTFOUND" "TCP_MD5UNEXPECTED" "TCP_MD5FAILURE" "TCP_AUTH_HDR" "TCP_AONOTFOUND"
        "TCP_AOUNEXPECTED" "TCP_AOKEYNOTFOUND" "TCP_AOFAILURE" "XFRM_POLICY";
    Routing: "IP_OUTNOROUTES" "IP_INNOROUTES" "IP_RPFILTER" "IP_INVALID_SOURCE" "IP_INVALID_DEST"
        "IP_LOCALNET" "IP_LOCAL_SOURCE" "IPV6DISABLED" "IPV6_NDISC_FRAG" "NEIGH_CREATEFAIL" "NEIGH_FAILED"
        "NEIGH_QUEUEFULL" "NEIGH_DEAD" "NEIGH_HH_FILLFAIL" "TTL_EXCEEDED" "VXLAN_VNI_NOT_FOUND" "VXLAN_NO_REMOTE"
        "VXLAN_INVALID_HDR" "VXLAN_ENTRY_EXISTS" "IP_TUNNEL_ECN" "TUNNEL_TXINFO" "BRIDGE_INGRESS_STP_STATE"
        "DEV_READY" "LOCAL_MAC" "ARP_PVLAN_DISABLE" "MAC_INVALID_SOURCE" "INVALID_HDR_NEXTHOP" "BLACKHOLE" "NO_TX_TARGET";
    Capacity: "NOMEM" "SOCKET_RCVBUFF" "PROTO_MEM" "SOCKET_BACKLOG" "CPU_BACKLOG" "QDISC_DROP" "QDISC_OVERLIMIT"
        "QDISC_CONGESTED" "CAKE_FLOOD" "FQ_BAND_LIMIT" "FQ_HORIZON_LIMIT" "FQ_FLOW_LIMIT" "FULL_RING" "SKB_UCOPY_FAULT"
        "DUALPI2_STEP_DROP" "QUEUE_PURGE" "TCP_LISTEN_OVERFLOW" "PACKET_SOCK_ERROR" "TC_ERROR"
        "FRAG_REASM_TIMEOUT" "FRAG_TOO_FAR" "TCP_ZEROWINDOW";
    Mtu: "PKT_TOO_BIG" "SKB_GSO_SEG" "DUP_FRAG";
    Malformed: "PKT_TOO_SMALL" "TCP_CSUM" "UDP_CSUM" "ICMP_CSUM" "IP_CSUM" "IP_INHDR" "IP_NOPROTO" "SKB_CSUM" "DEV_HDR" "HDR_TRUNC"
        "TAP_TXFILTER" "TAP_FILTER" "INVALID_PROTO" "IPV6_BAD_EXTHDR" "IPV6_NDISC_BAD_OPTIONS"
        "IPV6_NDISC_BAD_CODE" "IPV6_NDISC_NS_OTHERHOST" "UNICAST_IN_L2_MULTICAST" "PSP_INPUT" "PSP_OUTPUT";
    // OLD_DATA to TCP_FIN: housekeeping of connections that work, or have ended.
    NotAFailure: "NOT_DROPPED_YET" "CONSUMED" "NOT_SPECIFIED" "NO_SOCKET" "SOCKET_CLOSE" "OTHERHOST" "DUPLICATE"
        "TCP_OLD_DATA" "TCP_OVERWINDOW" "TCP_OFOMERGE" "TCP_RFC7323_PAWS" "TCP_RFC7323_PAWS_ACK"
        "TCP_RFC7323_TSECR" "TCP_OLD_SEQUENCE" "TCP_INVALID_SEQUENCE" "TCP_INVALID_END_SEQUENCE"
        "TCP_INVALID_ACK_SEQUENCE" "TCP_RESET" "TCP_INVALID_SYN" "TCP_CLOSE" "TCP_FASTOPEN" "TCP_OLD_ACK"
        "TCP_TOO_OLD_ACK" "TCP_ACK_UNSENT_DATA" "TCP_OFO_QUEUE_PRUNE" "TCP_OFO_DROP" "TCP_ABORT_ON_DATA"
        "TCP_ABORT_ON_CLOSE" "TCP_ABORT_ON_LINGER" "TCP_FIN" "DEV_DOWN" "IP_MULTICAST" "UNHANDLED_PROTO"
        "TCP_RFC7323_TW_PAWS"        "RECURSION_LIMIT" "MAX" "SUBSYS_MASK";
}

/// Where in the table a name stands.
pub(super) fn place_of(name: &str) -> Option<u32> {
    REASONS.iter().position(|(known, _)| *known == name).and_then(|place| u32::try_from(place).ok())
}

/// Name and class of a kernel reason's number.
pub(super) fn entry(code: u32) -> Option<(&'static str, DropClass)> {
    REASONS.get(usize::try_from(code.checked_sub(BASE)?).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::super::DropReason;
    use super::*;

    #[test]
    fn kernel_reasons_are_known_by_name() {
        for (name, class) in REASONS {
            let reason = DropReason::from_kernel_name(&format!("SKB_DROP_REASON_{name}"));
            assert_eq!((reason.to_string().as_str(), reason.class()), (*name, *class));
            assert_eq!(REASONS.iter().filter(|(other, _)| other == name).count(), 1, "{name}");
        }
        let class = |name| DropReason::from_kernel_name(name).class();
        assert_eq!(class("TC_EGRESS"), DropClass::Filtered);
        assert_eq!(class("NO_SOCKET"), DropClass::NotAFailure);
        assert_eq!(DropReason::from_kernel_name("SOMETHING_NEW"), DropReason::OTHER_KERNEL_REASON);
        assert_eq!(class("SOMETHING_NEW"), DropClass::Unknown);
    }
}
