//! The policies that a source named for a denial, so few that whoever names ever new ones fills no memory. Of too many
//! those stay that come first by order: that is the same set in whatever order and grouping they were told or merged.

use std::collections::BTreeSet;

use crate::attribute::ReportedPolicy;

/// Policies remembered for one denial. Those that deny one packet are one or two.
pub const MAX_NAMED: usize = 16;

/// Policies, sorted, the first few.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Named(BTreeSet<ReportedPolicy>);

impl Named {
    /// Adds these.
    pub fn extend<'a>(&mut self, policies: impl IntoIterator<Item = &'a ReportedPolicy>) {
        for policy in policies {
            let full = self.0.len() >= MAX_NAMED;
            let outside = full && self.0.last().is_some_and(|last| policy > last);
            if outside || self.0.contains(policy) {
                continue;
            }
            self.0.insert(policy.clone());
            if full {
                self.0.pop_last();
            }
        }
    }

    /// The policies, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &ReportedPolicy> {
        self.0.iter()
    }
}

impl IntoIterator for Named {
    type Item = ReportedPolicy;
    type IntoIter = std::collections::btree_set::IntoIter<ReportedPolicy>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::observation::Direction;

    fn named(numbers: &[u8]) -> Named {
        let policies: Vec<_> = numbers
            .iter()
            .map(|number| ReportedPolicy {
                kind: "CiliumNetworkPolicy".to_owned(),
                namespace: "lab".to_owned(),
                name: format!("policy-{number:03}"),
                direction: Direction::Egress,
            })
            .collect();
        let mut named = Named::default();
        named.extend(&policies);
        named
    }

    proptest! {
        /// The cap changes nothing in the laws of merging, nor does the order in which policies are told.
        #[test]
        fn the_cap_is_the_same_in_any_order(
            looks in prop::collection::vec(prop::collection::vec(0_u8..60, 0..40), 3),
        ) {
            let join = |a: &Named, b: &Named| { let mut all = a.clone(); all.extend(b.iter()); all };
            let [a, b, c] = [named(&looks[0]), named(&looks[1]), named(&looks[2])];
            prop_assert_eq!(join(&a, &b), join(&b, &a));
            prop_assert_eq!(join(&join(&a, &b), &c), join(&a, &join(&b, &c)));
            prop_assert_eq!(join(&a, &a), a.clone());
            let mut all = looks.concat();
            prop_assert_eq!(&join(&join(&a, &b), &c), &named(&all));
            all.sort_unstable();
            all.dedup();
            all.truncate(MAX_NAMED);
            prop_assert_eq!(named(&all), named(&looks.concat()));
        }
    }
}
