//! What a campaign writes down, as plain data.

use std::path::PathBuf;

use brownout_campaign::budget::Spent;
use brownout_campaign::sync::Seen;
use brownout_images::{ImageId, InputId};
use serde::{Deserialize, Serialize};

use brownout_stage::Delivery;

/// What must stay the same in a campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// What makes the root image.
    pub setup: Option<String>,
    /// A file that the root image holds.
    pub image: Option<PathBuf>,
    /// Patterns of files that are persistent memory.
    pub pm: Vec<String>,
    /// How inputs reach it. Old campaigns know standard input only.
    #[serde(default, skip_serializing_if = "Delivery::is_stdin")]
    pub delivery: Delivery,
}

/// One line of the journal. Old journals lack the later kinds; so new ones are added at the end.
#[derive(Serialize, Deserialize)]
pub enum Record {
    /// A case.
    Case(KeptCase),
    /// A finding: its key, and the rest as JSON.
    Found(String, String),
    /// What was spent.
    Spent(Spent),
    /// How far the queues of other fuzzers were read.
    Seen(Seen),
    /// What the file of a seed was called, by the number of its case, which follows.
    Named(u64, String),
    /// The case of this number was looked at closely.
    Looked(u64),
}

/// A case of the queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptCase {
    /// Its number.
    pub id: u64,
    /// Its image.
    pub image: ImageId,
    /// Its input.
    pub input: InputId,
    /// The case that it was made from.
    pub parent: Option<u64>,
    /// How.
    pub operation: String,
    /// How much it matters.
    pub priority: u8,
    /// The user gave it.
    pub is_seed: bool,
    /// When: milliseconds and executions.
    pub at: (u64, u64),
}

/// What may change in a campaign: as it was begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// How the tool was called.
    pub command_line: String,
    /// Where: the program's arguments may name files from there.
    pub folder: PathBuf,
    /// What recovers after a crash, as a shell command.
    pub recover: Option<String>,
    /// The user's own detector, a shell command.
    #[serde(default)]
    pub detect: Option<String>,
    /// The persistence domain, by name.
    pub domain: String,
    /// A run that has more memory of its own, in bytes, is cut off.
    #[serde(default)]
    pub memory_max: Option<u64>,
    /// A run that takes longer does not end: seconds.
    pub hang_after: f64,
}
