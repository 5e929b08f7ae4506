//! What is told about distance: round trips, and what bytes across zones cost.

use serde::Serialize;

use crate::prices::Billed;

/// Round trips across zones and within one.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct RttReport {
    /// Median within a zone, in milliseconds; `null` when it was not measured often enough.
    pub within_zone_ms_p50: Option<f64>,
    /// Median across zones, in milliseconds.
    pub cross_zone_ms_p50: Option<f64>,
    /// 99th percentile across zones, in milliseconds.
    pub cross_zone_ms_p99: Option<f64>,
    /// Share of the bytes between the job's pods that cross zones.
    pub crossing_bytes_ratio: Option<f64>,
}

/// What bytes across zones cost.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CostReport {
    /// Payload bytes that crossed zones, each counted once.
    pub bytes: u64,
    /// US dollars they cost; `null` when no price is known, a lower bound when it is of a part only.
    pub usd: Option<f64>,
    /// US dollars an hour, at the rate seen.
    pub usd_per_hour: Option<f64>,
    /// The price of the part that costs most; `null` when it is not known.
    pub price: Option<PriceReport>,
}

/// A price of bytes across zones.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct PriceReport {
    /// The provider, as its nodes' ids name it: `aws`, `gce`, `azure`, ...
    pub provider: String,
    /// US dollars for 10^9 bytes that cross, all ends together.
    pub usd_per_gb: f64,
    /// Which end pays.
    pub billed: Billed,
    /// The day of which the price is.
    pub as_of: String,
}
