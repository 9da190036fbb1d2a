//! Reaches paths that no test covers: runs a program on inputs that are solved for, branch by branch.
//!
//! ```text
//!  search ─▶ input ─▶ stage: a run, forked where the program first looks at its input ─▶ run: which instructions touch the input (followed, once for new code)
//!    ▲                                                └─▶ run: the state in front of these (captured) ─▶ shadow: what they compute ─▶ path
//!    └──────────── solver: an input on which a decision goes the other way ◀───────────────────────────────────────────────────────────┘
//! ```
//! The program runs translated, with its own libraries, on the real kernel. Only the instructions that touch the input are looked at, outside of the program:
//! some hundreds of a million.
//!
//! **Guarantee.** Every path was executed, on an input that anyone can give the program. A finding was seen in such a run; nothing is derived from expressions
//! alone. An instruction that is not described makes fewer paths, never wrong ones.
//!
//! **Source.** AGAMOTTO (OSDI 2020); SAGE (NDSS 2008) for the search. **Deviations.** Those of `search.rs` and `shadow.rs`. Only standard input can be solved for, in one
//! process, and only as many bytes as it had to begin with.

mod captured;
mod input;
mod judge;
mod modules;
mod numbers;
mod options;
mod path;
mod run;
mod search;
mod shadow;
mod stage;
mod tables;
mod value;

use std::fs;

pub use judge::{Found, Proof};
pub use numbers::Numbers;
pub use options::{Error, Options, Strategy};
pub use search::{Over, Progress};
pub use shadow::Losses;

use options::io_error;
use search::Search;
use stage::Stage;

/// What came of a search.
pub struct Searched {
    /// What was found, and by which input.
    pub found: Vec<Found>,
    /// What was done.
    pub numbers: Numbers,
    /// What was not followed.
    pub losses: Losses,
    /// Inputs that together do all that was done to persistent memory.
    pub kept: Vec<Vec<u8>>,
    /// Why it has ended.
    pub over: Over,
}

/// Searches.
///
/// # Errors
///
/// The program cannot be run, or kept apart from the machine.
pub fn symex(options: &Options, progress: &mut dyn Progress) -> Result<Searched, Error> {
    if let Some(out) = &options.out {
        fs::create_dir_all(out.join("tests")).map_err(io_error("cannot make the folder"))?;
    }
    let mut search = Search::new(options, Stage::new(options)?);
    let over = search.run(progress)?;
    let (numbers, losses) = (search.numbers, search.losses);
    let (kept, judge) = (search.kept, search.judge);
    if let Some(out) = &options.out {
        for (number, input) in kept.iter().enumerate() {
            let path = out.join("tests").join(format!("{number:06}"));
            fs::write(path, input).map_err(io_error("cannot keep an input"))?;
        }
    }
    let found = judge.found.into_iter().map(|(_, found)| found).collect();
    Ok(Searched {
        found,
        numbers,
        losses,
        kept,
        over,
    })
}

/// Runs the program on the input of a finding: whether it shows again.
///
/// # Errors
///
/// As [`symex`].
pub fn replay(options: &Options, proof: &Proof) -> Result<bool, Error> {
    let options = Options {
        first: proof.input.clone(),
        paths: Some(1),
        ..options.clone()
    };
    let mut search = Search::new(&options, Stage::new(&options)?);
    search.run(&mut Silent)?;
    Ok(search.judge.has(proof))
}

struct Silent;

impl Progress for Silent {
    fn show(&mut self, _: &Numbers) {}
}
