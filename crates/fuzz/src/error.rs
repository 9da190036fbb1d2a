//! Why a campaign, or a look at one, does not come about.

/// Why a campaign cannot go on.
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
    /// The program cannot be kept apart from the machine.
    #[error("{0}")]
    Stage(brownout_stage::Error),
    /// LibAFL has failed.
    #[error("{0}")]
    LibAfl(#[from] libafl::Error),
    /// The set-up has failed.
    #[error("the set-up failed: {0}")]
    SetUp(String),
    /// The campaign's folder cannot be used.
    #[error("{0}")]
    Folder(#[from] brownout_campaign::folder::FolderError),
    /// The campaign's journal cannot be used.
    #[error("{0}")]
    Journal(#[from] brownout_campaign::journal::JournalError),
    /// Nothing can be exchanged with other fuzzers.
    #[error("{0}")]
    Sync(#[from] brownout_campaign::sync::SyncError),
    /// Something in the campaign's folder makes no sense.
    #[error("the campaign's folder is damaged: {0}")]
    Corrupt(String),
    /// A crash image cannot be made, or explored.
    #[error("{0}")]
    Explore(#[from] brownout_explore::Error),
    /// A worker could not go on.
    #[error("{0}")]
    Worker(String),
    /// There is nothing of that name in the campaign.
    #[error(
        "there is no '{0}' in this campaign: name a test case (12), an image (img:5) or a finding (16 digits)"
    )]
    Unknown(String),
    /// There is something where something is to be written.
    #[error("{} is not empty; name another folder", .0.display())]
    Occupied(std::path::PathBuf),
    /// The user's detector has failed.
    #[error("{0}")]
    Detector(String),
    /// The user has ended it.
    #[error("ended before it was done; nothing was written")]
    Stopped,
    /// Nothing was run yet.
    #[error("nothing was run yet")]
    Nothing,
}

impl From<brownout_stage::Error> for Error {
    fn from(error: brownout_stage::Error) -> Error {
        use brownout_stage::Error as Stage;
        match error {
            Stage::Io(error) => Error::Io(error),
            Stage::Launch(error) => Error::Launch(error),
            Stage::Images(error) => Error::Images(error),
            Stage::SetUp(why) => Error::SetUp(why),
            Stage::Explore(error) => Error::Explore(error),
            error @ (Stage::NoView(_) | Stage::NoNetwork | Stage::Stopped) => Error::Stage(error),
        }
    }
}
