//! Event time. Enters: RFC 3339 text or nanoseconds; leaves: [`Timestamp`]. Knows no clock: "now" is always
//! an argument, so that the same input gives the same report.

use std::fmt;
use std::time::Duration;

/// A point in event time: nanoseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch, the earliest representable time.
    pub const MIN: Timestamp = Timestamp(0);

    /// From nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// Parses RFC 3339 text (any UTC offset, up to nanosecond precision). `None` for anything else, for times
    /// before 1970 and after 2554.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let parsed: jiff::Timestamp = text.parse().ok()?;
        u64::try_from(parsed.as_nanosecond()).ok().map(Self)
    }

    /// This time moved later by `by`; the last representable time when that overflows.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// This time moved earlier by `by`; the epoch when that underflows.
    #[must_use]
    pub fn minus(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }

    /// How long after `earlier` this is; zero when it is not after it.
    #[must_use]
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The start of the window of length `width` that holds this time. A zero width leaves it unchanged.
    #[must_use]
    pub fn floor_to(self, width: Duration) -> Self {
        let width = nanos(width).max(1);
        Self(self.0 - self.0 % width)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC, with as many fractional digits as the value needs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_nanosecond(i128::from(self.0)) {
            Ok(t) => write!(f, "{t}"),
            Err(_) => write!(f, "{}ns", self.0),
        }
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_hubble_and_kubernetes_print() {
        let t = Timestamp::parse("2026-11-01T10:00:20.000099999Z").unwrap();
        assert_eq!(t.to_string(), "2026-11-01T10:00:20.000099999Z");
        assert_eq!(Timestamp::parse("2026-11-01T10:00:20Z").unwrap().to_string(), "2026-11-01T10:00:20Z");
        assert_eq!(Timestamp::parse("2026-11-01T12:00:20+02:00"), Timestamp::parse("2026-11-01T10:00:20Z"));
        for wrong in ["", "yesterday", "2026-11-01", "1960-01-01T00:00:00Z", "2026-13-01T00:00:00Z"] {
            assert_eq!(Timestamp::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn arithmetic_saturates() {
        let t = Timestamp::from_nanos(5);
        assert_eq!(t.minus(Duration::from_secs(1)), Timestamp::MIN);
        assert_eq!(t.since(Timestamp::from_nanos(9)), Duration::ZERO);
        assert_eq!(Timestamp::from_nanos(u64::MAX).plus(Duration::from_secs(1)).nanos(), u64::MAX);
        assert_eq!(Timestamp::from_nanos(25).floor_to(Duration::from_nanos(10)).nanos(), 20);
    }
}
