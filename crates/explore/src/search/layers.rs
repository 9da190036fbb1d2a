//! The runs of an exploration: the recorded one, and recoveries that are themselves cut short.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use crate::recording::Recording;
use crate::view::{Files, Image, View};

/// A run: the recorded one, or a recovery that is itself cut short.
pub struct Layer {
    pub recording: Recording,
    /// The crash that this recovery followed.
    pub parent: Option<Crash>,
}

/// A crash: where, and what it left.
#[derive(Clone)]
pub struct Crash {
    pub layer: usize,
    pub point: u32,
    pub image: Image,
}

/// All runs. The first is the recorded one; each other one follows a crash of one before it.
pub struct Layers {
    all: Vec<Layer>,
}

impl Layers {
    pub fn new(recording: Recording) -> Layers {
        let parent = None;
        Layers {
            all: vec![Layer { recording, parent }],
        }
    }

    /// Adds a recovery that is cut short, and gives its number.
    pub fn push(&mut self, layer: Layer) -> usize {
        self.all.push(layer);
        self.all.len() - 1
    }

    /// What persistent memory may hold at a failure point.
    pub fn view(&self, layer: usize, point: u32) -> View {
        View {
            timeline: self[layer].recording.timeline.clone(),
            point,
        }
    }

    /// The files that a crash at a failure point leaves.
    pub fn files(&self, layer: usize, point: u32) -> Arc<Files> {
        self[layer].recording.points[point as usize].files.clone()
    }

    /// The failure point of the recorded run that a crash goes back to.
    pub fn origin(&self, mut layer: usize, mut point: u32) -> u32 {
        while let Some(parent) = &self[layer].parent {
            (layer, point) = (parent.layer, parent.point);
        }
        point
    }
}

impl Index<usize> for Layers {
    type Output = Layer;

    fn index(&self, layer: usize) -> &Layer {
        &self.all[layer]
    }
}

impl IndexMut<usize> for Layers {
    fn index_mut(&mut self, layer: usize) -> &mut Layer {
        &mut self.all[layer]
    }
}
