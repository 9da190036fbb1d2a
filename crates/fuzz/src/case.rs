//! A test case: an input for the program, and the image that it starts from.

use brownout_images::ImageId;
use libafl::inputs::{HasMutatorBytes, Input, ResizableMutator};
use libafl_bolts::HasLen;
use serde::{Deserialize, Serialize};
use std::ops::RangeBounds;
use std::vec::{Drain, Splice};

/// See the module's header.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Case {
    /// What the program's files hold when it starts.
    pub image: ImageId,
    /// What it reads.
    pub input: Vec<u8>,
}

/// A case to begin with.
#[derive(Clone, Debug)]
pub struct Begun {
    /// The case.
    pub case: Case,
    /// It is a seed of the user's.
    pub is_seed: bool,
    /// It was looked at closely before.
    pub is_looked: bool,
}

impl Input for Case {}

impl HasLen for Case {
    fn len(&self) -> usize {
        self.input.len()
    }
}

/// LibAFL's mutators change the input's bytes, never the image.
impl HasMutatorBytes for Case {
    fn mutator_bytes(&self) -> &[u8] {
        &self.input
    }

    fn mutator_bytes_mut(&mut self) -> &mut [u8] {
        &mut self.input
    }
}

impl ResizableMutator<u8> for Case {
    fn resize(&mut self, new_len: usize, value: u8) {
        self.input.resize(new_len, value);
    }

    fn extend<'a, I: IntoIterator<Item = &'a u8>>(&mut self, iter: I) {
        Extend::extend(&mut self.input, iter);
    }

    fn splice<R, I>(&mut self, range: R, replace_with: I) -> Splice<'_, I::IntoIter>
    where
        R: RangeBounds<usize>,
        I: IntoIterator<Item = u8>,
    {
        self.input.splice(range, replace_with)
    }

    fn drain<R>(&mut self, range: R) -> Drain<'_, u8>
    where
        R: RangeBounds<usize>,
    {
        self.input.drain(range)
    }
}
