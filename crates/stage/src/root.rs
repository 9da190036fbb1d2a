//! The first image: an empty one, what the set-up leaves, or a file of the user's.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use brownout_explore::Ground;
use brownout_host::{ExitStatus, LaunchConfig};
use brownout_images::{ImageId, Origin, Store, View, capture};

use crate::error::Error;

/// Where the first image comes from.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    /// A shell command that makes the files.
    pub setup: Option<String>,
    /// A file of the user's.
    pub image: Option<PathBuf>,
    /// Ends the set-up when true.
    pub stop: Arc<AtomicBool>,
}

/// The root of the images: the one that is there, or a new one.
pub fn root(origins: &Origins, ground: &Ground, store: &Store) -> Result<ImageId, Error> {
    if let Some(root) = store.root() {
        return Ok(root);
    }
    let enclosures = ground
        .enclosures()
        .map_err(|why| Error::NoView(why.to_owned()))?;
    let view = Arc::new(enclosures.enclose(&[])?);
    if let Some(setup) = &origins.setup {
        // Under the engine, though nothing is recorded: what it makes must be the same next time,
        // identifiers and seeds included.
        let mut config = LaunchConfig::new("sh", ["-c", setup]);
        config.deterministic = true;
        config.enclosure = Some(view.clone());
        config.dies_with_tool = true;
        config.stop = Some(origins.stop.clone());
        config.stdin = Some(fs::File::open("/dev/null")?);
        config.stdout = Some(fs::File::create("/dev/null")?);
        let outcome = brownout_host::run(&config)?;
        match (outcome.stopped, outcome.status) {
            (Some(_), _) => return Err(Error::Stopped),
            (None, ExitStatus::Code(0)) => {}
            (None, ExitStatus::Code(code)) => {
                return Err(Error::SetUp(format!("exit code {code}: {setup}")));
            }
            (None, ExitStatus::Signal(signal)) => {
                return Err(Error::SetUp(format!("killed by signal {signal}: {setup}")));
            }
        }
    }
    let mut changed: Vec<PathBuf> = view.changed()?.into_keys().collect();
    if let Some(image) = &origins.image {
        // Made part of the image as it is now, whatever becomes of the user's file.
        let path = std::path::absolute(image)?;
        fs::File::options()
            .read(true)
            .write(true)
            .open(view.path(&path))?;
        changed = view.changed()?.into_keys().collect();
    }
    let captured = capture(
        changed,
        &View {
            at: &|path| view.path(path),
            machine: &Path::to_path_buf,
        },
    )?;
    let made = match (&origins.setup, &origins.image) {
        (Some(setup), _) => setup.clone(),
        (None, Some(image)) => image.display().to_string(),
        (None, None) => String::new(),
    };
    let added = store.add(None, Origin::Root(made), &captured.contents)?;
    Ok(added.id)
}
