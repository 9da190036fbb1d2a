//! Where images come from.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{ImageId, InputId};

/// How an image came about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Origin {
    /// It was there from the beginning; says what made it.
    Root(String),
    /// The program, started on the parent image with this input, left it behind.
    Run {
        /// Its input.
        input: InputId,
    },
    /// The power failed while the program ran on the parent image.
    Crash {
        /// Its input.
        input: InputId,
        /// When it failed, and what had reached persistence.
        at: FailureLocation,
    },
    /// Bytes of the parent image were flipped at random, which no program and no crash has done:
    /// for comparison only.
    Flipped {
        /// From which the bytes follow.
        seed: u64,
    },
}

impl Origin {
    /// The input of the run that made it.
    pub fn input(&self) -> Option<InputId> {
        match self {
            Origin::Run { input } | Origin::Crash { input, .. } => Some(*input),
            Origin::Root(_) | Origin::Flipped { .. } => None,
        }
    }
}

/// Where in a run the power failed, and which of the legal outcomes this is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FailureLocation {
    /// When.
    pub moment: Moment,
    /// What had reached persistence.
    pub kept: Kept,
}

/// A moment of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Moment {
    /// Before the ordering point with that number.
    OrderingPoint(u64),
    /// Before the event with that number.
    Event(u64),
}

/// Which of the stores that may or may not have reached persistence have done so.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kept {
    /// None: only what is certain.
    Certain,
    /// All of them.
    Everything,
    /// A legal choice that follows from a seed.
    Seed(u64),
    /// A certain choice, as whoever made it has encoded it.
    Chosen(Vec<u8>),
}

/// An image's place in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Which image.
    pub id: ImageId,
    /// In order of arrival, from 0.
    pub number: u32,
    /// The image that it came from; `None` for a root.
    pub parent: Option<ImageId>,
    /// How it came from that.
    pub origin: Origin,
    /// How many steps it is from its root. Fewer if a shorter way has been found since.
    pub depth: u32,
}

/// How an image is made from nothing, as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// What made the root.
    pub setup: String,
    /// The root itself.
    pub root: ImageId,
    /// What then happened, in order; the last leaves the image behind.
    pub steps: Vec<Step>,
}

/// One step of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What is done.
    pub action: Action,
    /// What the files are then.
    pub image: ImageId,
}

/// What is done to get from one image to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// The program runs to its end.
    Run {
        /// With this input.
        input: Vec<u8>,
    },
    /// The program runs, and the power fails.
    Crash {
        /// With this input.
        input: Vec<u8>,
        /// When, and what is left.
        at: FailureLocation,
    },
    /// Bytes are flipped.
    Flip {
        /// From which they follow.
        seed: u64,
    },
}

/// A path that could not become part of an image as it is; see [`capture`](crate::capture).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Which.
    pub path: PathBuf,
    /// What about it.
    pub why: WhyLeftOut,
}

/// What about a path is not in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyLeftOut {
    /// It is a device, and not in the image at all.
    Device,
    /// The file has other names, too; in the image each name is a file of its own.
    OtherNames,
}
