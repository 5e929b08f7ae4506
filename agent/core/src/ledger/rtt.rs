//! How round-trip times are distributed, in little space. Enters: durations; leaves: quantiles within 2 % of the true
//! ones. Counts of buckets only: adding two sketches is adding their counts, in any order.

use std::time::Duration;

/// Each power of two is cut into so many buckets (a power of two itself): a bucket is at most 1/32 wide.
const CUTS: u64 = 32;
const CUT_BITS: u32 = CUTS.trailing_zeros();

/// A histogram of durations with buckets that grow with the value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct RttSketch {
    /// Buckets that hold something, with their counts, by bucket.
    buckets: Vec<(u16, u64)>,
}

impl RttSketch {
    /// Counts a duration.
    pub fn add(&mut self, rtt: Duration) {
        self.count(bucket(u64::try_from(rtt.as_nanos()).unwrap_or(u64::MAX)), 1);
    }

    /// Adds everything another sketch holds.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.buckets {
            self.count(*bucket, *count);
        }
    }

    pub(crate) fn count(&mut self, bucket: u16, by: u64) {
        match self.buckets.binary_search_by_key(&bucket, |(known, _)| *known) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(by),
            Err(at) => self.buckets.insert(at, (bucket, by)),
        }
    }

    /// How many durations were counted.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// The duration that a share of `per_mille` thousandths does not exceed; `None` when nothing was counted.
    #[must_use]
    pub fn quantile(&self, per_mille: u32) -> Option<Duration> {
        let wanted = (u128::from(self.samples()) * u128::from(per_mille.min(1000))).div_ceil(1000).max(1);
        let mut seen = 0_u128;
        for (bucket, count) in &self.buckets {
            seen += u128::from(*count);
            if seen >= wanted {
                return Some(Duration::from_nanos(middle(*bucket)));
            }
        }
        None
    }

    /// The buckets that hold something, by number, with their counts.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (u16, u64)> {
        self.buckets.iter().copied()
    }

    /// The buckets that hold something: the duration in the middle of each, and how many were counted in it.
    pub fn iter(&self) -> impl Iterator<Item = (Duration, u64)> {
        self.buckets.iter().map(|(bucket, count)| (Duration::from_nanos(middle(*bucket)), *count))
    }
}

/// Below [`CUTS`] every nanosecond has its bucket; from there on each power of two has [`CUTS`] of them.
fn bucket(nanos: u64) -> u16 {
    let Some(shift) = (63 - (nanos | 1).leading_zeros()).checked_sub(CUT_BITS) else {
        return u16::try_from(nanos).unwrap_or(0);
    };
    // At most 58 * 32 + 63.
    u16::try_from(u64::from(shift) * CUTS + (nanos >> shift)).unwrap_or(u16::MAX)
}

fn middle(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    if bucket < 2 * CUTS {
        return bucket;
    }
    let shift = bucket / CUTS - 1;
    let low = (bucket - shift * CUTS) << shift;
    low.saturating_add((1_u64 << shift) / 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bucket_is_near_its_value(nanos in any::<u64>()) {
            let told = middle(bucket(nanos));
            prop_assert!(told.abs_diff(nanos) <= nanos / 50, "{nanos} is told as {told}");
        }

        #[test]
        fn buckets_keep_the_order(a in any::<u64>(), b in any::<u64>()) {
            prop_assert_eq!(a.cmp(&b).then(bucket(a).cmp(&bucket(b))), a.cmp(&b));
            prop_assert!(a > b || bucket(a) <= bucket(b));
        }

        #[test]
        fn quantiles_are_near_the_true_ones(
            mut nanos in prop::collection::vec(1_000_u64..10_000_000_000, 1..200),
            per_mille in 1_u32..=1000,
        ) {
            let mut sketch = RttSketch::default();
            nanos.iter().for_each(|n| sketch.add(Duration::from_nanos(*n)));
            nanos.sort_unstable();
            let place = (nanos.len() * per_mille as usize).div_ceil(1000) - 1;
            let told = u64::try_from(sketch.quantile(per_mille).unwrap().as_nanos()).unwrap();
            prop_assert!(told.abs_diff(nanos[place]) <= nanos[place] / 50);
        }

        #[test]
        fn sketches_add_in_any_order(parts in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..20), 3)) {
            let sketch = |of: &[u64]| {
                let mut sketch = RttSketch::default();
                of.iter().for_each(|n| sketch.add(Duration::from_nanos(*n)));
                sketch
            };
            let plus = |a: &RttSketch, b: &RttSketch| { let mut all = a.clone(); all.merge(b); all };
            let [a, b, c] = [sketch(&parts[0]), sketch(&parts[1]), sketch(&parts[2])];
            prop_assert_eq!(plus(&a, &b), plus(&b, &a));
            prop_assert_eq!(plus(&plus(&a, &b), &c), plus(&a, &plus(&b, &c)));
            prop_assert_eq!(plus(&plus(&a, &b), &c), sketch(&parts.concat()));
        }
    }

    #[test]
    fn nothing_has_no_quantile() {
        assert_eq!(RttSketch::default().quantile(500), None);
        assert_eq!((bucket(0), bucket(u64::MAX), middle(bucket(u64::MAX)) > u64::MAX / 2), (0, 1919, true));
    }
}
