//! How far a campaign is, as plain data.

use std::time::Duration;

use serde::Serialize;

use crate::worker::Figures;

fn seconds<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((time.as_secs_f64() * 1e3).round() / 1e3)
}

/// How far a campaign is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Progress {
    /// Since the beginning, breaks left out.
    #[serde(rename = "elapsed_s", serialize_with = "seconds")]
    pub elapsed: Duration,
    /// Executions.
    pub executions: u64,
    /// Of all workers: coverage is that of the best.
    pub figures: Figures,
    /// Cases of the queue.
    pub cases: u64,
    /// Findings: correctness, others.
    pub findings: (u64, u64),
    /// Executions a second, lately.
    pub rate: f64,
    /// When how many PM paths had been reached, of runs and of recoveries: seconds since the tool
    /// was started, and their number.
    pub reached: Vec<(f64, u32)>,
}
