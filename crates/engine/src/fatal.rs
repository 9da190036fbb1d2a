//! Errors that end the program: the user's, or ours. Neither is ever silent.

use crate::service;
use brownout_abi::FatalKind;

/// The program does something that is documented as unsupported.
pub fn fatal_unsupported(text: &str) -> ! {
    service::fatal(FatalKind::Unsupported, text.as_bytes())
}

/// A bug of this engine.
#[cold]
pub fn fatal_bug(text: &str) -> ! {
    service::fatal(FatalKind::Bug, text.as_bytes())
}
