//! The crash as files, and the commands that show it natively.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use brownout_findings::{CrashFile, Reproduction};
use brownout_trace::event::FileId;

use crate::execution::{Command, quote};
use crate::view::{Entry, Image};
use crate::world::World;

/// Writes the image's files into a folder. Files that the crash leaves absent have none.
pub fn write_image(
    image: &Image,
    world: &mut World,
    names: &BTreeMap<FileId, PathBuf>,
    folder: &Path,
) -> io::Result<BTreeMap<FileId, PathBuf>> {
    fs::create_dir_all(folder)?;
    world.lay(image)?;
    let mut written = BTreeMap::new();
    for (path, id) in world.existing() {
        let own = world.called(id).or(names.get(&id));
        let name = own.and_then(|path| path.file_name()).unwrap_or_default();
        let name = name.to_owned();
        let mut to = folder.join(&name);
        if written.values().any(|other| *other == to) {
            to = folder.join(format!("{}-{}", id.0, name.to_string_lossy()));
        }
        crate::files::copy_sparse(&fs::File::open(path)?, &to)?;
        written.insert(id, to);
    }
    Ok(written)
}

/// The commands that show it natively; `setup` comes first if recovery needs more of it than the
/// tracked files.
pub fn reproduction(
    names: &BTreeMap<FileId, PathBuf>,
    images: &BTreeMap<FileId, PathBuf>,
    image: &Image,
    recover: &Command,
    setup: Option<&str>,
) -> Reproduction {
    let mut steps: Vec<String> = setup
        .map(|line| format!("( {line} )"))
        .into_iter()
        .collect();
    let mut files = Vec::new();
    let mut called: BTreeMap<FileId, String> = BTreeMap::new();
    for (path, entry) in &image.files.names {
        let path = crate::filing::path_of(path);
        let to = quote(&path.to_string_lossy());
        let mut file = CrashFile {
            path: path.to_string_lossy().into_owned(),
            image: None,
        };
        match entry {
            // Folders, too, that the run has made.
            Entry::Absent => steps.push(format!("rm -rf {to}")),
            Entry::Folder => steps.push(format!("mkdir -p {to}")),
            Entry::Link(target) => {
                let target = String::from_utf8_lossy(target);
                steps.push(format!("ln -sfn {} {to}", quote(&target)));
            }
            Entry::File(id) => match (called.get(id), images.get(id)) {
                (Some(first), _) => steps.push(format!("ln -f {first} {to}")),
                (None, Some(image)) => {
                    let image = image.to_string_lossy().into_owned();
                    steps.push(format!("cp {} {to}", quote(&image)));
                    called.insert(*id, to);
                    file.image = Some(image);
                }
                (None, None) => {}
            },
        }
        files.push(file);
    }
    // Where names are not what the image is about, each file has its own.
    let fixed = names.iter().filter(|_| image.files.names.is_empty());
    for (id, path) in fixed {
        if let Some(folder) = path.parent()
            && !folder.is_dir()
            && images.contains_key(id)
        {
            // The run has made it, in its private view.
            steps.push(format!("mkdir -p {}", quote(&folder.to_string_lossy())));
        }
        let to = quote(&path.to_string_lossy());
        match images.get(id) {
            Some(image) => steps.push(format!("cp {} {to}", quote(&image.to_string_lossy()))),
            None => steps.push(format!("rm -f {to}")),
        }
        files.push(CrashFile {
            path: path.to_string_lossy().into_owned(),
            image: images.get(id).map(|p| p.to_string_lossy().into_owned()),
        });
    }
    let stdin = match &recover.stdin {
        Some(path) => format!(" < {}", quote(&path.to_string_lossy())),
        None => " < /dev/null".into(),
    };
    let place = steps.join(" && ");
    let command = format!("{place} && {}{stdin}", recover.display());
    // What stands behind gdb's `run` takes the place of the arguments that `--args` gives, so all
    // of them stand there.
    let args = recover
        .args
        .iter()
        .map(|word| quote(&word.to_string_lossy()));
    let run: String = args.map(|word| format!(" {word}")).collect();
    let gdb = format!(
        "{place} && gdb -ex {} {}",
        quote(&format!("run{run}{stdin}")),
        quote(&recover.program.to_string_lossy())
    );
    Reproduction {
        files,
        command,
        gdb,
        status: String::new(),
        stdout: String::new(),
        confirmed: false,
    }
}
