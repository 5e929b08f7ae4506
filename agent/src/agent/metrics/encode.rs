//! Families of series on their way into text. Enters: families; leaves: text in the form that was asked for.

use std::fmt;
use std::io;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, LabelSetEncoder, NoLabelSet, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

/// Labels of a series.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A family: series of one name.
#[derive(Clone, Debug)]
pub(super) struct Family {
    /// Its name without `_total`.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) series: Series,
}

/// Series, by labels.
#[derive(Clone, Debug)]
pub(super) enum Series {
    Gauges(Vec<(Labels, f64)>),
    Counters(Vec<(Labels, Count)>),
    Histograms(Vec<(Labels, Histogram)>),
}

impl Series {
    fn is_empty(&self) -> bool {
        match self {
            Self::Gauges(series) => series.is_empty(),
            Self::Counters(series) => series.is_empty(),
            Self::Histograms(series) => series.is_empty(),
        }
    }
}

/// What a counter counted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Count {
    Whole(u64),
    Dollars(f64),
}

/// A histogram.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Histogram {
    pub(super) sum: f64,
    /// Upper bounds with how many lie in each bucket alone; the last bound is `f64::INFINITY`.
    pub(super) buckets: Vec<(f64, u64)>,
}

/// A form of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::agent) enum Form {
    /// Prometheus' own, 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

struct Labelled<'a>(&'a Labels);

impl EncodeLabelSet for Labelled<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.as_slice().encode(encoder)
    }
}

#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        // A family without series says nothing; its name alone would look like a zero.
        for family in self.0.iter().filter(|family| !family.series.is_empty()) {
            let kind = match &family.series {
                Series::Gauges(_) => MetricType::Gauge,
                Series::Counters(_) => MetricType::Counter,
                Series::Histograms(_) => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            match &family.series {
                Series::Gauges(series) => {
                    for (labels, value) in series {
                        metric.encode_family(&Labelled(labels))?.encode_gauge(value)?;
                    }
                }
                Series::Counters(series) => {
                    for (labels, count) in series {
                        let labels = Labelled(labels);
                        let mut metric = metric.encode_family(&labels)?;
                        match count {
                            Count::Whole(count) => {
                                metric.encode_counter::<NoLabelSet, _, u64>(count, None)?
                            }
                            Count::Dollars(count) => {
                                metric.encode_counter::<NoLabelSet, _, u64>(count, None)?
                            }
                        }
                    }
                }
                Series::Histograms(series) => {
                    for (labels, histogram) in series {
                        let count = histogram.buckets.iter().map(|(_, count)| count).sum();
                        metric.encode_family(&Labelled(labels))?.encode_histogram::<NoLabelSet>(
                            histogram.sum,
                            count,
                            &histogram.buckets,
                            None,
                        )?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Writes families.
pub(super) fn write(families: Vec<Family>, form: Form, to: &mut Vec<u8>) -> io::Result<()> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Families(families)));
    let mut written = String::new();
    let encoded = match form {
        Form::Prometheus => prometheus_text::encode(&mut written, &registry),
        Form::OpenMetrics => text::encode(&mut written, &registry),
    };
    encoded.map_err(|_| io::Error::other("the metrics cannot be written"))?;
    to.extend_from_slice(written.as_bytes());
    Ok(())
}
