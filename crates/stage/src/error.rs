//! Why a program cannot be run.

/// See the module's header.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system said no.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The program cannot be run.
    #[error("{0}")]
    Launch(#[from] brownout_host::LaunchError),
    /// The images cannot be kept.
    #[error("{0}")]
    Images(#[from] brownout_images::Error),
    /// No private view of the machine can be made.
    #[error(
        "the program needs a private view of the machine, so that it changes nothing of yours, and the kernel allows none: {0}"
    )]
    NoView(String),
    /// No network of its own can be made for a server.
    #[error(
        "a server that gets its input from here needs a network of its own, so that it does not meet yours, and the kernel allows none"
    )]
    NoNetwork,
    /// A run cannot be recorded, or explored.
    #[error("{0}")]
    Explore(#[from] brownout_explore::Error),
    /// The set-up has failed.
    #[error("the set-up failed: {0}")]
    SetUp(String),
    /// It was told to end while the set-up ran.
    #[error("ended in the set-up")]
    Stopped,
}
