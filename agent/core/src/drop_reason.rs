//! Why a packet was dropped, in Cilium's terms or in the kernel's, and what kind of fault each reason is. Enters:
//! codes and names as Hubble writes them, names as the running kernel's types hold them; leaves: [`DropReason`] and
//! its [`DropClass`]. Must not know jobs.
//!
//! Codes and names are those of Cilium's `flow.DropReason` up to 1.19; a few names mislead (136 really means
//! "fragmentation needed", 161 "NAT 46/64 not enabled"), so classes follow the meaning, not the name.

mod kernel;

use std::fmt;

/// A drop reason by its numeric code; unknown codes are kept. The kernel's own reasons have no stable numbers: they
/// are known by name and lie far above all of Cilium's codes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DropReason(u32);

/// What kind of fault a drop reason tells of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DropClass {
    /// No policy allows it (default deny, or a load balancer's source ranges).
    Policy,
    /// A deny rule matched.
    ExplicitDeny,
    /// A packet filter outside of Cilium drops it: netfilter, a traffic-control or XDP program, a socket filter. Which
    /// policy that filter enforces, if any, it does not tell.
    Filtered,
    /// A policy asks for authentication or encryption that is not there.
    Authentication,
    /// Normal for moments while an endpoint starts or pods churn; a fault when it stays.
    Transient,
    /// A table is full or a rate limit was hit.
    Capacity,
    /// The packet does not fit.
    Mtu,
    /// No way to the destination.
    Routing,
    /// A service has no backend or address translation failed.
    LoadBalancing,
    /// The datapath cannot handle this packet.
    Malformed,
    /// Handled elsewhere: not a failure.
    NotAFailure,
    /// Not told, or a code newer than this table.
    Unknown,
}

macro_rules! reasons {
    ($($code:literal $name:literal $class:ident;)*) => {
        fn entry(code: u32) -> Option<(&'static str, DropClass)> {
            match code {
                $($code => Some(($name, DropClass::$class)),)*
                _ => None,
            }
        }

        fn code_of(name: &str) -> Option<u32> {
            match name {
                $($name => Some($code),)*
                _ => None,
            }
        }
    };
}

reasons! {
    0 "DROP_REASON_UNKNOWN" Unknown;
    130 "INVALID_SOURCE_MAC" Malformed;
    131 "INVALID_DESTINATION_MAC" Malformed;
    132 "INVALID_SOURCE_IP" Malformed;
    133 "POLICY_DENIED" Policy;
    134 "INVALID_PACKET_DROPPED" Malformed;
    135 "CT_TRUNCATED_OR_INVALID_HEADER" Malformed;
    136 "CT_MISSING_TCP_ACK_FLAG" Mtu;
    137 "CT_UNKNOWN_L4_PROTOCOL" Malformed;
    138 "CT_CANNOT_CREATE_ENTRY_FROM_PACKET" Malformed;
    139 "UNSUPPORTED_L3_PROTOCOL" Malformed;
    140 "MISSED_TAIL_CALL" Transient;
    141 "ERROR_WRITING_TO_PACKET" Malformed;
    142 "UNKNOWN_L4_PROTOCOL" Malformed;
    143 "UNKNOWN_ICMPV4_CODE" Malformed;
    144 "UNKNOWN_ICMPV4_TYPE" Malformed;
    145 "UNKNOWN_ICMPV6_CODE" Malformed;
    146 "UNKNOWN_ICMPV6_TYPE" Malformed;
    147 "ERROR_RETRIEVING_TUNNEL_KEY" Routing;
    148 "ERROR_RETRIEVING_TUNNEL_OPTIONS" Routing;
    149 "INVALID_GENEVE_OPTION" Routing;
    150 "UNKNOWN_L3_TARGET_ADDRESS" Routing;
    151 "STALE_OR_UNROUTABLE_IP" Routing;
    152 "NO_MATCHING_LOCAL_CONTAINER_FOUND" Routing;
    153 "ERROR_WHILE_CORRECTING_L3_CHECKSUM" Malformed;
    154 "ERROR_WHILE_CORRECTING_L4_CHECKSUM" Malformed;
    155 "CT_MAP_INSERTION_FAILED" Capacity;
    156 "INVALID_IPV6_EXTENSION_HEADER" Malformed;
    157 "IP_FRAGMENTATION_NOT_SUPPORTED" Mtu;
    158 "SERVICE_BACKEND_NOT_FOUND" LoadBalancing;
    160 "NO_TUNNEL_OR_ENCAPSULATION_ENDPOINT" Routing;
    161 "FAILED_TO_INSERT_INTO_PROXYMAP" Malformed;
    162 "REACHED_EDT_RATE_LIMITING_DROP_HORIZON" Capacity;
    163 "UNKNOWN_CONNECTION_TRACKING_STATE" Malformed;
    164 "LOCAL_HOST_IS_UNREACHABLE" Routing;
    165 "NO_CONFIGURATION_AVAILABLE_TO_PERFORM_POLICY_DECISION" Transient;
    166 "UNSUPPORTED_L2_PROTOCOL" Malformed;
    167 "NO_MAPPING_FOR_NAT_MASQUERADE" LoadBalancing;
    168 "UNSUPPORTED_PROTOCOL_FOR_NAT_MASQUERADE" LoadBalancing;
    169 "FIB_LOOKUP_FAILED" Routing;
    170 "ENCAPSULATION_TRAFFIC_IS_PROHIBITED" Routing;
    171 "INVALID_IDENTITY" Routing;
    172 "UNKNOWN_SENDER" Routing;
    173 "NAT_NOT_NEEDED" LoadBalancing;
    174 "IS_A_CLUSTERIP" LoadBalancing;
    175 "FIRST_LOGICAL_DATAGRAM_FRAGMENT_NOT_FOUND" Mtu;
    176 "FORBIDDEN_ICMPV6_MESSAGE" Malformed;
    177 "DENIED_BY_LB_SRC_RANGE_CHECK" Policy;
    178 "SOCKET_LOOKUP_FAILED" Malformed;
    179 "SOCKET_ASSIGN_FAILED" Malformed;
    180 "PROXY_REDIRECTION_NOT_SUPPORTED_FOR_PROTOCOL" Malformed;
    181 "POLICY_DENY" ExplicitDeny;
    182 "VLAN_FILTERED" Malformed;
    183 "INVALID_VNI" Routing;
    184 "INVALID_TC_BUFFER" Malformed;
    185 "NO_SID" Routing;
    186 "MISSING_SRV6_STATE" Routing;
    187 "NAT46" Malformed;
    188 "NAT64" Malformed;
    189 "AUTH_REQUIRED" Authentication;
    190 "CT_NO_MAP_FOUND" Capacity;
    191 "SNAT_NO_MAP_FOUND" LoadBalancing;
    192 "INVALID_CLUSTER_ID" Routing;
    193 "UNSUPPORTED_PROTOCOL_FOR_DSR_ENCAP" Malformed;
    194 "NO_EGRESS_GATEWAY" Routing;
    195 "UNENCRYPTED_TRAFFIC" Authentication;
    196 "TTL_EXCEEDED" Malformed;
    197 "NO_NODE_ID" Routing;
    198 "DROP_RATE_LIMITED" Capacity;
    199 "IGMP_HANDLED" NotAFailure;
    200 "IGMP_SUBSCRIBED" NotAFailure;
    201 "MULTICAST_HANDLED" NotAFailure;
    202 "DROP_HOST_NOT_READY" Transient;
    203 "DROP_EP_NOT_READY" Transient;
    204 "DROP_NO_EGRESS_IP" Routing;
    205 "DROP_PUNT_PROXY" NotAFailure;
}

impl DropReason {
    /// No reason was told.
    pub const UNKNOWN: DropReason = DropReason(0);
    /// No policy allows it.
    pub const POLICY_DENIED: DropReason = DropReason(133);
    /// A deny rule matched.
    pub const POLICY_DENY: DropReason = DropReason(181);

    /// The kernel gave a reason that is not known here.
    pub const OTHER_KERNEL_REASON: DropReason = DropReason(kernel::BASE);

    /// By numeric code, known or not.
    #[must_use]
    pub const fn from_code(code: u32) -> Self {
        Self(code)
    }

    /// By the enum name Hubble prints; `None` when the name is not known.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        code_of(name).map(Self)
    }

    /// By the name of an entry of the kernel's `enum skb_drop_reason`, with or without its prefix. A name that is
    /// not known becomes [`DropReason::OTHER_KERNEL_REASON`].
    #[must_use]
    pub fn from_kernel_name(name: &str) -> Self {
        let name = name.strip_prefix("SKB_DROP_REASON_").unwrap_or(name);
        kernel::place_of(name).map_or(Self::OTHER_KERNEL_REASON, |place| Self(kernel::BASE + place))
    }

    /// The numeric code.
    #[must_use]
    pub const fn code(self) -> u32 {
        self.0
    }

    /// What kind of fault this is.
    #[must_use]
    pub fn class(self) -> DropClass {
        entry(self.0).or_else(|| kernel::entry(self.0)).map_or(DropClass::Unknown, |(_, class)| class)
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match entry(self.0).or_else(|| kernel::entry(self.0)) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "DROP_REASON_{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_agree() {
        for code in 0..300 {
            let reason = DropReason::from_code(code);
            if entry(code).is_some() {
                assert_eq!(DropReason::from_name(&reason.to_string()), Some(reason));
            } else {
                assert_eq!(reason.class(), DropClass::Unknown);
                assert_eq!(reason.to_string(), format!("DROP_REASON_{code}"));
            }
        }
        assert_eq!(DropReason::from_name("SOMETHING_NEW"), None);
        assert_eq!(DropReason::from_code(u32::MAX).class(), DropClass::Unknown);
        assert_eq!(DropReason::POLICY_DENIED.class(), DropClass::Policy);
        assert_eq!(DropReason::from_code(136).class(), DropClass::Mtu);
    }
}
