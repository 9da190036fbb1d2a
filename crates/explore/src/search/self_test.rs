//! A sample of what was looked up, to be run and compared: the search tests itself.

use std::collections::VecDeque;

use super::item::Item;

/// One of so many known outcomes is put aside.
const ONE_OF: u64 = 97;

/// See the module's header.
pub struct Sample {
    /// Items with the outcome that was looked up for each.
    items: VecDeque<(Item, u32)>,
    rng: u64,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample {
            items: VecDeque::new(),
            rng: 0x9e37_79b9_7f4a_7c15,
        }
    }
}

impl Sample {
    /// An outcome was looked up. It may be taken into the sample.
    pub fn offer(&mut self, item: &Item, outcome: u32) {
        // xorshift: the same samples in every run.
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        if self.rng.is_multiple_of(ONE_OF) {
            self.items.push_back((item.clone(), outcome));
        }
    }

    /// The next one to be run.
    pub fn pop(&mut self) -> Option<(Item, u32)> {
        self.items.pop_front()
    }
}
