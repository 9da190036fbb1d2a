//! Names for the stacks of all runs of an exploration.

use std::collections::BTreeMap;

use brownout_findings::{Frame, Origin};

use crate::recording::Recording;
use crate::site::Site;
use crate::stacks::Resolver;

/// Names of the stacks of all layers.
#[derive(Default)]
pub struct Resolvers {
    layers: BTreeMap<usize, Resolver>,
}

impl Resolvers {
    /// The stack of a place in a layer's run.
    pub fn stack(&mut self, layer: usize, recording: &Recording, site: Site) -> Vec<Frame> {
        self.of(layer, recording).stack(site)
    }

    /// The program and the test that a place in a layer's run belongs to, if that is known.
    pub fn origin(&mut self, layer: usize, recording: &Recording, site: Site) -> Option<Origin> {
        let resolver = self.of(layer, recording);
        let stack = resolver.stack(site);
        resolver.origin(site, &stack)
    }

    /// What the instruction of a place in a layer's run is said to access, if it is so many bytes.
    pub fn accessed(
        &mut self,
        layer: usize,
        recording: &Recording,
        site: Site,
        size: u64,
    ) -> Option<String> {
        self.of(layer, recording).accessed(site, size)
    }

    fn of(&mut self, layer: usize, recording: &Recording) -> &mut Resolver {
        self.layers
            .entry(layer)
            .or_insert_with(|| recording.definitions.resolve())
    }
}
