//! Finds interleavings of threads that lose data after a crash, and shows each by a schedule and a
//! crash image.
//!
//! ```text
//!  search ─▶ input, schedule ─▶ stage: a run in a private view ─▶ watch: who reads what is not persistent, locks, deadlocks
//!                                                           │ anything new
//!                                                           ▼
//!                       the same run again ─▶ effects: what is made of it ─▶ judge: crash, recovery ─▶ finding, proof
//! ```
//! A thread reads what another one has stored and not made persistent, and makes something durable
//! of it; then the power fails, and leaves the one without the other. Or it takes a lock that lies
//! in persistent memory; then the power fails, and nobody gives it back. Both need an interleaving
//! that tests hardly ever see. Here a scheduler decides who goes on (`brownout_host::Schedule`), so
//! that what was seen once can be seen again, event for event.
//!
//! **Guarantee.** A finding that is an error was shown: its schedule was run twice, its crash image
//! is legal by the model, recovery failed on it and not on the images next to it (see `judge.rs`),
//! under the tool and natively. What was not found may still be there: schedules are samples.
//!
//! **Source.** PMRace (ASPLOS 2022), sections 3 to 5. **Deviations.** Its scheduler sleeps and
//! hopes; this one decides. It confirms what recovery does not overwrite; here something has to
//! fail, and what is only left as it is is a warning. The others are in the headers of the modules
//! that have them.

mod campaign;
mod deadlock;
mod discoveries;
mod effects;
mod ending;
mod finding;
mod goals;
mod inputs;
mod judge;
mod live;
mod minimise;
mod numbers;
mod options;
mod predict;
mod proof;
mod search;
mod site;
mod stage;
mod watch;
mod words;

pub use brownout_campaign::status;
pub use campaign::{Looked, Raced, look, race};
pub use discoveries::{Discovery, Remark};
pub use inputs::Seeds;
pub use numbers::Numbers;
pub use options::{Error, Options};
pub use proof::{Proof, Replayed};
pub use search::{Over, Progress};
