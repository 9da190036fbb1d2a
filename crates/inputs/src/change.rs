//! What can be done to an input, by name.

use serde::{Deserialize, Serialize};

/// One way to change an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A new operation somewhere, often with a key that is there already.
    Add,
    /// An operation less.
    Delete,
    /// Several neighbouring operations less.
    DeleteRange,
    /// An operation once more, beside itself or elsewhere.
    Duplicate,
    /// Another operation with the same parameters: `i 5` becomes `r 5`.
    Exchange,
    /// A parameter gets a new value.
    Renew,
    /// A key becomes the same as another operation's.
    Meet,
    /// A number becomes one more or less, data a byte longer or shorter.
    Step,
    /// A number becomes one at which programs change their mind.
    Boundary,
    /// A number becomes large, or a word long.
    Big,
    /// A parameter becomes a word or number of the dictionary or of a comparison.
    Token,
    /// What stands in the input and was compared with something becomes that.
    Operand,
    /// A length becomes wrong.
    Length,
    /// Two operations change places.
    Swap,
    /// A range gets another order.
    Shuffle,
    /// A range goes elsewhere.
    Move,
    /// The beginning of this input and the end of another.
    Concatenate,
    /// This input and another, alternately.
    Interleave,
    /// The beginning once more, at the end.
    Replay,
    /// Some neighbouring operations several times.
    Repeat,
    /// Many insertions: nodes split, tables are rebuilt.
    Populate,
    /// What was inserted is removed, in another order.
    Drain,
}

impl Change {
    /// All of them.
    pub const ALL: [Change; 22] = [
        Change::Add,
        Change::Delete,
        Change::DeleteRange,
        Change::Duplicate,
        Change::Exchange,
        Change::Renew,
        Change::Meet,
        Change::Step,
        Change::Boundary,
        Change::Big,
        Change::Token,
        Change::Operand,
        Change::Length,
        Change::Swap,
        Change::Shuffle,
        Change::Move,
        Change::Concatenate,
        Change::Interleave,
        Change::Replay,
        Change::Repeat,
        Change::Populate,
        Change::Drain,
    ];

    /// Its name, for people and file names.
    pub fn name(self) -> &'static str {
        match self {
            Change::Add => "add",
            Change::Delete => "delete",
            Change::DeleteRange => "delete-range",
            Change::Duplicate => "duplicate",
            Change::Exchange => "exchange",
            Change::Renew => "renew",
            Change::Meet => "meet",
            Change::Step => "step",
            Change::Boundary => "boundary",
            Change::Big => "big",
            Change::Token => "token",
            Change::Operand => "operand",
            Change::Length => "length",
            Change::Swap => "swap",
            Change::Shuffle => "shuffle",
            Change::Move => "move",
            Change::Concatenate => "concatenate",
            Change::Interleave => "interleave",
            Change::Replay => "replay",
            Change::Repeat => "repeat",
            Change::Populate => "populate",
            Change::Drain => "drain",
        }
    }

    /// How often it is tried before anything is known. Adding leads, because a seed has one or two
    /// operations.
    pub fn base(self) -> u64 {
        match self {
            Change::Add => 16,
            Change::Exchange | Change::Renew | Change::Meet => 6,
            Change::Delete | Change::Duplicate | Change::Step | Change::Token => 4,
            Change::Operand | Change::Swap | Change::Shuffle | Change::Repeat => 3,
            Change::Populate | Change::Drain | Change::Concatenate | Change::Interleave => 3,
            Change::DeleteRange | Change::Move | Change::Replay | Change::Boundary => 2,
            Change::Big | Change::Length => 1,
        }
    }
}
