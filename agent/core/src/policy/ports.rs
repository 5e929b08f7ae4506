//! Sets of port numbers. Enters: ranges; leaves: sorted ranges that do not touch each other.

/// A set of ports as sorted, disjoint, not adjacent ranges, both ends included.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct PortSet(Vec<(u16, u16)>);

impl PortSet {
    pub(super) fn range(low: u16, high: u16) -> Self {
        Self::from_iter([(low, high)])
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_ranges(self) -> Vec<(u16, u16)> {
        self.0
    }

    pub(super) fn add(&mut self, other: &PortSet) {
        let mut ranges = std::mem::take(&mut self.0);
        ranges.extend_from_slice(&other.0);
        *self = ranges.into_iter().collect();
    }

    pub(super) fn intersect(&self, other: &PortSet) -> PortSet {
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(a), Some(b)) = (ours.peek(), theirs.peek()) {
            let (low, high) = (a.0.max(b.0), a.1.min(b.1));
            if low <= high {
                both.push((low, high));
            }
            // What ends here has met all it can meet.
            ours.next_if(|range| range.1 == high);
            theirs.next_if(|range| range.1 == high);
        }
        Self(both)
    }

    /// The ports of this set that are not in `other`.
    pub(super) fn without(&self, other: &PortSet) -> PortSet {
        let mut rest = self.clone();
        rest.take(other);
        rest
    }

    /// Takes the ports of `other` out of this set and gives those that were in both.
    pub(super) fn take(&mut self, other: &PortSet) -> PortSet {
        let taken = self.intersect(other);
        let mut cuts = taken.0.iter().peekable();
        let mut rest = Vec::new();
        for &(low, high) in &self.0 {
            let mut start = Some(low);
            while let Some(&(first, last)) = cuts.next_if(|cut| cut.0 <= high) {
                rest.extend(start.zip(first.checked_sub(1)).filter(|(start, end)| start <= end));
                start = last.checked_add(1);
            }
            rest.extend(start.filter(|start| *start <= high).map(|start| (start, high)));
        }
        self.0 = rest;
        taken
    }
}

impl FromIterator<(u16, u16)> for PortSet {
    fn from_iter<T: IntoIterator<Item = (u16, u16)>>(ranges: T) -> Self {
        let mut ranges: Vec<(u16, u16)> = ranges.into_iter().filter(|(low, high)| low <= high).collect();
        ranges.sort_unstable();
        let mut joined: Vec<(u16, u16)> = Vec::new();
        for (low, high) in ranges {
            match joined.last_mut() {
                Some(last) if low <= last.1.saturating_add(1) => last.1 = last.1.max(high),
                _ => joined.push((low, high)),
            }
        }
        Self(joined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u16, u16)]) -> PortSet {
        ranges.iter().copied().collect()
    }

    #[test]
    fn adjacent_ranges_join_and_empty_ones_vanish() {
        assert_eq!(set(&[(5, 6), (1, 2), (3, 4), (9, 8)]).into_ranges(), [(1, 6)]);
        assert_eq!(set(&[(1, 2), (4, 4)]).into_ranges(), [(1, 2), (4, 4)]);
        assert_eq!(set(&[(1, 9), (2, 3)]).into_ranges(), [(1, 9)]);
        assert_eq!(set(&[(0, 65535), (65535, 65535)]).into_ranges(), [(0, 65535)]);
        assert!(PortSet::range(2, 1).is_empty() && !PortSet::range(1, 1).is_empty());
    }

    #[test]
    fn taking_leaves_the_rest() {
        let mut all = set(&[(0, 10), (20, 65535)]);
        assert_eq!(
            all.take(&set(&[(0, 0), (5, 25), (65535, 65535)])),
            set(&[(0, 0), (5, 10), (20, 25), (65535, 65535)])
        );
        assert_eq!(all, set(&[(1, 4), (26, 65534)]));
        assert!(all.take(&set(&[(5, 25)])).is_empty());
        assert_eq!(all.intersect(&set(&[(3, 30)])), set(&[(3, 4), (26, 30)]));
    }

    #[test]
    fn every_operation_agrees_with_single_ports() {
        let sets = [
            set(&[]),
            set(&[(1, 3)]),
            set(&[(0, 0), (2, 4)]),
            set(&[(1, 1), (3, 3), (5, 7)]),
            set(&[(0, 7)]),
        ];
        let has = |set: &PortSet, port: u16| set.0.iter().any(|(low, high)| (*low..=*high).contains(&port));
        for a in &sets {
            for b in &sets {
                let (mut sum, mut rest) = (a.clone(), a.clone());
                sum.add(b);
                let taken = rest.take(b);
                for port in 0..=8 {
                    assert_eq!(has(&sum, port), has(a, port) || has(b, port));
                    assert_eq!(has(&taken, port), has(a, port) && has(b, port));
                    assert_eq!(has(&rest, port), has(a, port) && !has(b, port));
                    assert_eq!(has(&a.without(b), port), has(&rest, port));
                }
            }
        }
    }
}
