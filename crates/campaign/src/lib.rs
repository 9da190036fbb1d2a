//! A long search on disk: its folder, journal, budget and status, for whoever searches.
//!
//! **Purpose.** A search that takes hours is killed, resumed, watched, limited and shared between
//! workers. None of that depends on what is searched; so it is here, and knows nothing of programs,
//! images or persistent memory.
//!
//! | module | what |
//! |---|---|
//! | [`folder`] | the campaign's folder: lock, identity, layout |
//! | [`case_name`], [`afl`] | names and figures as AFL++ writes them, for its tools and people's scripts |
//! | [`files`] | files that are written whole or not at all |
//! | [`journal`] | records that survive `kill -9` and full disks |
//! | [`course`] | what was reached when, for whoever draws it |
//! | [`budget`] | limits of time and executions, shares of work, pauses |
//! | [`status`] | what is shown meanwhile, on a terminal and in a log |
//! | [`sync`] | inputs are exchanged with a running AFL++ |
//! | [`workers`] | threads that share what they discover |
//!
//! **Guarantee.** Whatever the folder holds, opening it gives an error that says what is wrong, or
//! what was there; it never panics, and never changes what is not a campaign. What was recorded is
//! not lost by `kill -9`, at any moment. Each module's header has the details.
//!
//! ```
//! use brownout_campaign::folder::{Folder, Identity};
//! use brownout_campaign::journal::Journal;
//!
//! # let place = tempfile::tempdir()?;
//! # let path = place.path();
//! let identity = Identity::new("fuzz", &"what must agree", &"what may change")?;
//! let folder = Folder::create(path, &identity)?;
//! let journal = folder.layout().journal();
//! let (mut journal, _, _) = Journal::<String>::open(&journal, &identity.hash())?;
//! journal.append(&"found something".to_owned())?;
//! drop((journal, folder));
//!
//! let folder = Folder::resume(path, &identity)?;
//! let (_, records, _) = Journal::<String>::open(&folder.layout().journal(), &identity.hash())?;
//! assert_eq!(records, ["found something"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(unreachable_pub)]

pub mod afl;
pub mod budget;
pub mod case_name;
pub mod course;
pub mod files;
pub mod folder;
pub mod journal;
pub mod status;
pub mod sync;
pub mod workers;
