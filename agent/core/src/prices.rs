//! What bytes between zones cost, by cloud. A table with its date; the configuration may override any of it. List
//! prices, application bytes: headers (some 3 to 6 %) and discounts are left out. Must not know jobs.
//!
//! Between zones of a region:
//! - AWS bills 0.01 USD a GB to the sender and as much to the receiver (AWS, "EC2 on-demand pricing", data transfer
//!   within a region).
//! - Google Cloud bills 0.01 USD a GiB to the sender (Google Cloud, "Network pricing", egress between zones).
//! - Azure bills nothing (Microsoft, "What are availability zones?").
//! - Oracle Cloud bills nothing (Oracle, "Networking pricing", traffic between availability domains).
//!
//! Between regions prices depend on the two regions and change more often: the values here are those between two
//! regions of North America or Europe, to be overridden where it matters.

use std::collections::BTreeMap;

use crate::facts::Zone;

/// Bytes of a GiB, in which Google bills, in GB, in which prices are given here.
const GB_PER_GIB: f64 = 1.073_741_824;

/// When the table was made.
pub const AS_OF: &str = "2026-09-20";

/// Which end pays.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Billed {
    /// Each end pays half.
    BothEnds,
    /// The sending end pays.
    Sender,
    /// Nobody pays.
    Nobody,
}

/// How far apart two pods of different zones are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Crossing {
    /// In different zones of one region.
    Zone,
    /// In different regions.
    Region,
}

/// What bytes cost.
#[derive(Clone, PartialEq, Debug)]
pub struct Price {
    /// US dollars for 10^9 bytes that cross, all ends together.
    pub usd_per_gb: f64,
    /// Which end pays.
    pub billed: Billed,
}

/// What a cloud asks.
#[derive(Clone, PartialEq, Debug)]
pub struct Tariff {
    /// Between zones of a region; `None`: not known.
    pub zone: Option<Price>,
    /// Between regions; `None`: not known.
    pub region: Option<Price>,
    /// The day of which these prices are.
    pub as_of: String,
}

/// What clouds ask, by provider: the part of a node's `spec.providerID` before `://`.
#[derive(Clone, PartialEq, Debug)]
pub struct Prices(pub BTreeMap<String, Tariff>);

impl Default for Prices {
    fn default() -> Self {
        let price = |usd_per_gb: f64, billed| Some(Price { usd_per_gb, billed });
        let tariff = |zone, region| Tariff { zone, region, as_of: AS_OF.to_owned() };
        let free = || price(0.0, Billed::Nobody);
        let table = [
            ("aws", tariff(price(0.02, Billed::BothEnds), price(0.02, Billed::Sender))),
            (
                "gce",
                tariff(price(0.01 / GB_PER_GIB, Billed::Sender), price(0.02 / GB_PER_GIB, Billed::Sender)),
            ),
            ("azure", tariff(free(), price(0.02, Billed::Sender))),
            ("oci", tariff(free(), None)),
        ];
        Self(table.into_iter().map(|(provider, tariff)| (provider.to_owned(), tariff)).collect())
    }
}

impl Prices {
    /// What this crossing costs at a provider; `None`: not known.
    #[must_use]
    pub fn of(&self, provider: &str, crossing: Crossing) -> Option<&Price> {
        let tariff = self.0.get(provider)?;
        match crossing {
            Crossing::Zone => tariff.zone.as_ref(),
            Crossing::Region => tariff.region.as_ref(),
        }
    }

    /// What so many bytes cost in US dollars; `None`: not known.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // dollars are told to the hundredth of a cent
    pub fn dollars(&self, provider: &str, crossing: Crossing, bytes: u64) -> Option<f64> {
        Some(self.of(provider, crossing)?.usd_per_gb * (bytes as f64 / 1e9))
    }
}

/// How far two zones are apart; `None`: they are the same. Zones are the same when their names are, and their regions
/// where both tell them.
#[must_use]
pub fn crossing(a: &Zone, b: &Zone) -> Option<Crossing> {
    match (&a.region, &b.region) {
        (Some(a), Some(b)) if a != b => Some(Crossing::Region),
        _ if a.name != b.name => Some(Crossing::Zone),
        _ => None,
    }
}

/// The provider that a node's `spec.providerID` names, for example `aws` of `aws:///eu-west-1a/i-0123`. Oracle's ids
/// begin with `ocid1.` instead.
#[must_use]
pub fn provider(provider_id: &str) -> Option<&str> {
    if provider_id.starts_with("ocid1.") {
        return Some("oci");
    }
    let (provider, _) = provider_id.split_once("://")?;
    (!provider.is_empty()).then_some(provider)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_named_by_their_nodes() {
        assert_eq!(provider("aws:///eu-west-1a/i-0123"), Some("aws"));
        assert_eq!(provider("gce://project/zone/name"), Some("gce"));
        assert_eq!(provider("ocid1.instance.oc1.phx.x"), Some("oci"));
        assert_eq!((provider(""), provider("://x"), provider("i-0123")), (None, None, None));
    }

    #[test]
    fn the_table_knows_who_pays() {
        let prices = Prices::default();
        let of = |provider: &str, crossing| prices.of(provider, crossing).map(|p| (p.usd_per_gb, p.billed));
        assert_eq!(of("aws", Crossing::Zone), Some((0.02, Billed::BothEnds)));
        assert_eq!(of("azure", Crossing::Zone), Some((0.0, Billed::Nobody)));
        assert!(of("gce", Crossing::Zone).is_some_and(|(usd, _)| (usd - 0.009_313).abs() < 1e-6));
        assert_eq!((of("oci", Crossing::Region), of("kind", Crossing::Zone)), (None, None));
    }
}
