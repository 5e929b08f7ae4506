//! What the running kernel is like: where its structures keep what the probes read, how many arguments its
//! tracepoints have, how it numbers its reasons. From its own type information (BTF), never from a copied table.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use btfparse::{Integer32Value, Offset, Readable, TypeInformation, TypeVariant};
use firedoor_core::drop_reason::{DropClass, DropReason};
use firedoor_ebpf::{BLOCK_BYTES, Config, IgnoredReasons, Offsets};

/// Where the kernel shows its type information, since 5.4 with `CONFIG_DEBUG_INFO_BTF`.
pub const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Why the kernel cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// No type information.
    #[error("cannot read the kernel's type information {}: {why} (a kernel built with CONFIG_DEBUG_INFO_BTF has it)", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// It makes no sense.
    #[error("the kernel's type information cannot be understood: {0}")]
    Malformed(String),
    /// The probes need something that this kernel does not have.
    #[error("this kernel has no {0}, without which no probe can work")]
    Lacks(String),
}

/// What the probes must know about the kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// Where things are.
    pub offsets: Offsets,
    /// How tracepoints look.
    pub config: Config,
    /// Drop reasons by number.
    pub drop_reasons: BTreeMap<u32, DropReason>,
    /// Numbers of drop reasons that tell of no failure.
    pub ignored: IgnoredReasons,
    /// Tracepoints the probes want and this kernel has.
    pub tracepoints: Vec<&'static str>,
    /// Things that are missing and what that costs, for a person.
    pub notes: Vec<String>,
}

/// The tracepoints the probes hook.
pub const TRACEPOINTS: [&str; 7] = [
    "inet_sock_set_state",
    "tcp_destroy_sock",
    "tcp_retransmit_skb",
    "tcp_receive_reset",
    "tcp_send_reset",
    "kfree_skb",
    "sk_data_ready",
];

struct Bytes(Vec<u8>);

impl Readable for Bytes {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> btfparse::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let bytes = start.checked_add(buffer.len()).and_then(|end| self.0.get(start..end));
        match bytes {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(btfparse::Error::new(btfparse::ErrorKind::EOF, "truncated")),
        }
    }
}

/// The types the probes need, by name.
struct Types {
    all: TypeInformation,
    structs: BTreeMap<&'static str, u32>,
    enums: BTreeMap<&'static str, u32>,
    /// `btf_trace_NAME`, by NAME.
    traces: BTreeMap<&'static str, u32>,
}

const STRUCTS: [&str; 9] =
    ["sock_common", "sock", "inet_sock", "tcp_sock", "net", "cgroup", "kernfs_node", "socket", "sk_buff"];
const NET_DEVICE: &str = "net_device";
const DROP_REASONS: &str = "skb_drop_reason";

impl Types {
    fn read(path: &Path) -> Result<Self, KernelError> {
        let bytes =
            std::fs::read(path).map_err(|why| KernelError::Unreadable { path: path.to_owned(), why })?;
        let all = TypeInformation::new(&Bytes(bytes))
            .map_err(|why| KernelError::Malformed(why.message().to_owned()))?;
        let (mut structs, mut enums, mut traces) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (id, variant) in all.get() {
            match variant {
                TypeVariant::Struct(found) => {
                    let Some(name) = found.name() else { continue };
                    let wanted = STRUCTS.iter().chain([&NET_DEVICE]).find(|wanted| **wanted == name);
                    if let Some(wanted) = wanted {
                        structs.entry(*wanted).or_insert(*id);
                    }
                }
                TypeVariant::Enum(found) if found.name().as_deref() == Some(DROP_REASONS) => {
                    enums.entry(DROP_REASONS).or_insert(*id);
                }
                TypeVariant::Typedef(found) => {
                    let Some(name) = found.name().as_deref() else { continue };
                    let Some(trace) = name.strip_prefix("btf_trace_") else { continue };
                    if let Some(wanted) = TRACEPOINTS.iter().find(|wanted| **wanted == trace) {
                        traces.entry(*wanted).or_insert(*id);
                    }
                }
                _ => {}
            }
        }
        Ok(Self { all, structs, enums, traces })
    }

    /// The byte offset of a member, anonymous structures looked through; `None` where there is none.
    fn offset(&self, of: &str, path: &str) -> Option<u32> {
        match self.all.offset_of(*self.structs.get(of)?, path).ok()? {
            (_, Offset::ByteOffset(bytes)) => Some(bytes),
            (_, Offset::BitOffsetAndSize(..)) => None,
        }
    }

    fn needed(&self, of: &str, path: &str) -> Result<u32, KernelError> {
        self.offset(of, path).ok_or_else(|| KernelError::Lacks(format!("{of}.{path}")))
    }

    /// Arguments of a tracepoint, without the hidden first one.
    fn arguments(&self, trace: &str) -> Option<u32> {
        let mut id = *self.traces.get(trace)?;
        for _ in 0..8 {
            id = match self.all.get().get(&id)? {
                TypeVariant::Typedef(to) => *to.tid(),
                TypeVariant::Ptr(to) => *to.tid(),
                TypeVariant::Const(to) => *to.tid(),
                TypeVariant::FuncProto(function) => {
                    let parameters = function.parameter_list().len();
                    return u32::try_from(parameters.checked_sub(1)?).ok();
                }
                _ => return None,
            };
        }
        None
    }

    fn values(&self, of: &str) -> Vec<(u32, String)> {
        let Some(TypeVariant::Enum(found)) = self.enums.get(of).and_then(|id| self.all.get().get(id)) else {
            return Vec::new();
        };
        let number = |value: Integer32Value| match value {
            Integer32Value::Signed(n) => u32::try_from(n).ok(),
            Integer32Value::Unsigned(n) => Some(n),
        };
        let values = found.named_value_list().iter();
        values.filter_map(|v| Some((number(v.value)?, v.name.clone()))).collect()
    }
}

impl Kernel {
    /// Reads the running kernel's type information.
    ///
    /// # Errors
    /// When there is none, or it lacks what every probe needs.
    pub fn running() -> Result<Self, KernelError> {
        Self::read(Path::new(BTF))
    }

    fn read(path: &Path) -> Result<Self, KernelError> {
        let types = Types::read(path)?;
        let mut notes = Vec::new();
        let offsets = offsets(&types, &mut notes)?;
        let kfree_skb_args = types.arguments("kfree_skb").unwrap_or(0);
        let config = Config {
            kfree_skb_args,
            send_reset_args: types.arguments("tcp_send_reset").unwrap_or(0),
            cgroups: u32::from(offsets.sk_cgroup != Offsets::ABSENT),
        };
        let (drop_reasons, ignored) = drop_reasons(types.values(DROP_REASONS));
        let mut tracepoints: Vec<&'static str> =
            TRACEPOINTS.into_iter().filter(|trace| types.traces.contains_key(trace)).collect();
        if kfree_skb_args < 3 || drop_reasons.is_empty() {
            tracepoints.retain(|trace| *trace != "kfree_skb");
            notes.push(
                "drops are not seen: this kernel does not say why it drops (5.17 and later do)".to_owned(),
            );
        }
        Ok(Self { offsets, config, drop_reasons, ignored, tracepoints, notes })
    }
}

fn offsets(types: &Types, notes: &mut Vec<String>) -> Result<Offsets, KernelError> {
    let common = |path| types.needed("sock_common", path);
    let tcp = |path| types.needed("tcp_sock", path);
    let skb = |path| types.needed("sk_buff", path);
    let optional = |of, path| types.offset(of, path).unwrap_or(Offsets::ABSENT);
    let mut offsets = Offsets {
        skc_family: common("skc_family")?,
        skc_state: common("skc_state")?,
        skc_dport: common("skc_dport")?,
        skc_daddr: common("skc_daddr")?,
        skc_rcv_saddr: common("skc_rcv_saddr")?,
        skc_v6_daddr: common("skc_v6_daddr")?,
        skc_v6_rcv_saddr: common("skc_v6_rcv_saddr")?,
        skc_net: common("skc_net.net")?,
        skc_cookie: common("skc_cookie")?,
        sk_protocol: types.needed("sock", "sk_protocol")?,
        sk_err: types.needed("sock", "sk_err")?,
        sk_cgroup: optional("sock", "sk_cgrp_data.cgroup"),
        inet_sport: types.needed("inet_sock", "inet_sport")?,
        net_inum: types.needed("net", "ns.inum")?,
        cgroup_kn: types.needed("cgroup", "kn")?,
        kernfs_id: types.needed("kernfs_node", "id")?,
        socket_sk: types.needed("socket", "sk")?,
        skb_dev: skb("dev")?,
        skb_sk: skb("sk")?,
        skb_len: skb("len")?,
        skb_data_len: skb("data_len")?,
        skb_head: skb("head")?,
        skb_data: skb("data")?,
        skb_network_header: skb("network_header")?,
        dev_net: types.needed(NET_DEVICE, "nd_net.net")?,
        sk_receive_queue_prev: types.needed("sock", "sk_receive_queue.prev")?,
        bytes_acked: tcp("bytes_acked")?,
        bytes_received: tcp("bytes_received")?,
        srtt_us: tcp("srtt_us")?,
        rtt_min: tcp("rtt_min.s[0].v")?,
        total_retrans: tcp("total_retrans")?,
        block: 0,
        block_len: 0,
    };
    if offsets.sk_cgroup == Offsets::ABSENT {
        notes.push("sockets do not tell their control group: pods are told by network namespace".to_owned());
        offsets.sk_cgroup = 0;
    }
    let counters = [
        (offsets.bytes_acked, 8),
        (offsets.bytes_received, 8),
        (offsets.srtt_us, 4),
        (offsets.rtt_min, 4),
        (offsets.total_retrans, 4),
    ];
    let start = counters.iter().map(|(at, _)| *at).min().unwrap_or(0) & !7;
    let end = counters.iter().map(|(at, size)| at + size).max().unwrap_or(0);
    if (end - start) as usize <= BLOCK_BYTES {
        (offsets.block, offsets.block_len) = (start, end - start);
    }
    Ok(offsets)
}

/// Names without the kernel's prefixes, and which of them tell of no failure.
fn drop_reasons(values: Vec<(u32, String)>) -> (BTreeMap<u32, DropReason>, IgnoredReasons) {
    let (mut reasons, mut ignored) = (BTreeMap::new(), IgnoredReasons::default());
    for (number, name) in values {
        let name = name.trim_start_matches("SKB_DROP_REASON_").trim_start_matches("SKB_");
        let reason = DropReason::from_kernel_name(name);
        let place = ignored.bits.get_mut(number as usize / 64);
        if let Some(bits) = place.filter(|_| reason.class() == DropClass::NotAFailure) {
            *bits |= 1 << (number % 64);
        }
        reasons.insert(number, reason);
    }
    (reasons, ignored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_keep_their_names() {
        let values = vec![
            (2, "SKB_DROP_REASON_NOT_SPECIFIED".to_owned()),
            (3, "SKB_DROP_REASON_NO_SOCKET".to_owned()),
            (8, "SKB_DROP_REASON_NETFILTER_DROP".to_owned()),
            (70, "SKB_DROP_REASON_TCP_OLD_DATA".to_owned()),
        ];
        let (reasons, ignored) = drop_reasons(values);
        assert_eq!(reasons[&8].to_string(), "NETFILTER_DROP");
        assert_eq!(ignored.bits[0] >> 8 & 1, 0, "a filter's drop is a failure");
        assert_eq!(ignored.bits[0] >> 2 & 1, 1);
        assert_eq!(ignored.bits[1] >> 6 & 1, 1);
    }

    #[test]
    fn this_kernel_can_be_read() {
        if !Path::new(BTF).exists() {
            eprintln!("NOT CHECKED: this kernel shows no type information");
            return;
        }
        let kernel = Kernel::running().unwrap();
        assert!(kernel.offsets.skc_dport < kernel.offsets.bytes_acked);
        assert!(kernel.tracepoints.contains(&"inet_sock_set_state"));
    }
}
