//! Metrics that are read when somebody asks, not counted as they change.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::labels::Named;
use crate::queue::Reading;

type Read = Arc<dyn Fn() -> Option<Reading> + Send + Sync>;

/// All queues of the process.
#[derive(Clone, Default)]
pub(super) struct Queues(Arc<Mutex<Vec<(&'static str, Read)>>>);

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.lock().iter().map(|(name, _)| name))
            .finish()
    }
}

impl Queues {
    pub(super) fn watch(&self, name: &'static str, read: Read) {
        self.0.lock().push((name, read));
    }

    fn readings(&self) -> Vec<(Named, Reading)> {
        let queues = self.0.lock().clone();
        queues
            .into_iter()
            .filter_map(|(name, read)| Some((Named { name }, read()?)))
            .collect()
    }
}

impl Collector for Queues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let readings = self.readings();
        let mut family = |name: &str, help: &str, value: fn(&Reading) -> f64| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            readings.iter().try_for_each(|(labels, reading)| {
                ConstGauge::new(value(reading)).encode(family.encode_family(labels)?)
            })
        };
        family("workqueue_depth", "Keys that are due.", |reading| {
            f64::from(u32::try_from(reading.depth).unwrap_or(u32::MAX))
        })?;
        family(
            "workqueue_unfinished_work_seconds",
            "Seconds of work in progress.",
            |reading| reading.unfinished,
        )?;
        family(
            "workqueue_longest_running_processor_seconds",
            "Seconds of the longest work in progress.",
            |reading| reading.longest,
        )
    }
}
