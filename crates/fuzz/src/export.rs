//! An image as something that anybody can make again: files, inputs and a script.
//!
//! ```text
//!  files/…      what is there before: the root, or the last image on the way that no command makes
//!  input-0, …   inputs of the runs that follow
//!  image/…      what the campaign has, to compare
//!  run.sh       runs the program once
//!  rebuild.sh   lays the files down, runs the program with each input, and compares
//! ```
//! **Guarantee.** The script runs the program natively, without the tool, and says whether the
//! files are those of the campaign, byte for byte. They are if the program stores nothing that
//! differs from run to run. Many programs do: libpmemobj keeps addresses of libraries, and of where
//! the pool is mapped, in the pool, which differ between any two native runs. With `BROWNOUT` set
//! to the tool, each run happens under that, at the addresses that it had in the campaign, and the
//! files are the same byte for byte.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use brownout_images::{Action, Chain, Change, ImageId, Step, View, lay};
use brownout_stage::{Delivery, FEEDER, FEEDER_TEXT, layout_after, quoted};

use crate::error::Error;
use crate::kept::Kept;

/// Lays the files down. What follows it is made for each image.
const BEGINNING: &str = "\
#!/bin/sh
# Makes the image again, in place: files of the same names are overwritten.
#
# The program runs natively. If it keeps addresses in its files, these differ from run to run. BROWNOUT=brownout ./rebuild.sh runs it under Brownout, at the
# addresses that it had in the campaign, so that the files are the same byte for byte.
set -e
cd \"$(dirname \"$0\")\"
here=$PWD
export here
";

/// Compares a file with that of the campaign.
const COMPARISON: &str = "\
different=0
compare() {
    if cmp -s \"$here/$1\" \"$2\"; then
        echo \"$2: as in the campaign, byte for byte\" >&2
    else
        echo \"$2: not as in the campaign\" >&2
        different=1
    fi
}
";

/// What is said in the end.
const END: &str = "\
if test \"$different\" = 1 && test -z \"$BROWNOUT\"; then
    echo 'If the program keeps addresses in its files: set BROWNOUT to the tool, and run it again.' >&2
    exit 0
fi
exit \"$different\"
";

/// What runs the program once. It takes which addresses it had, and the command.
fn runner(patterns: &[String]) -> String {
    let mut patterns_of = String::new();
    for pattern in patterns {
        let _ = write!(patterns_of, " --pm {}", quoted(pattern));
    }
    format!(
        "#!/bin/sh\nlayout=$1\nshift\ntest -n \"$BROWNOUT\" || exec \"$@\"\n\
         exec \"$BROWNOUT\" record --deterministic --layout \"$layout\"{patterns_of} --force -o \"$here/trace\" -- \"$@\"\n"
    )
}

fn write_script(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// The name of a file inside one of the folders.
fn inside(folder: &str, path: &Path) -> String {
    let name = path.to_string_lossy();
    format!("{folder}/{}", name.trim_start_matches('/'))
}

impl Kept {
    /// Writes into a folder what it takes to make an image again. The files to begin with are those
    /// of the root, or, if a crash or flipped bytes are part of the way, which no sequence of
    /// commands makes, those that the last of these has left.
    pub fn export(&self, image: ImageId, to: &Path) -> Result<Chain, Error> {
        let chain = self.store.export(image)?;
        fs::create_dir_all(to)?;
        let is_plain = |step: &Step| matches!(step.action, Action::Run { .. });
        let first = chain.steps.iter().rposition(|step| !is_plain(step));
        let base = first.map_or(chain.root, |at| chain.steps[at].image);
        let mut script = String::from(BEGINNING);
        for change in &self.lay_into(base, &to.join("files"))? {
            let name = change.path.to_string_lossy();
            let from = quoted(&inside("files", &change.path));
            let _ = writeln!(script, "cp -a {from} {}", quoted(&name));
        }
        let folder = self.settings.folder.to_string_lossy();
        let _ = writeln!(script, "cd {}", quoted(&folder));
        let from = first.map_or(0, |at| at + 1);
        let mut before = base;
        for (number, step) in chain.steps[from..].iter().enumerate() {
            if let Action::Run { input } = &step.action {
                let name = format!("input-{number}");
                let delivery = &self.key.delivery;
                fs::write(to.join(&name), delivery.exported(input))?;
                let layout = layout_after(&self.store.node(before)?);
                let runner = format!("sh \"$here/run.sh\" {layout}");
                script += &delivery.script(&runner, &self.key.program, &self.key.args, &name);
            }
            before = step.image;
        }
        script += "rm -f \"$here/trace\"\n";
        script += COMPARISON;
        for change in &self.lay_into(image, &to.join("image"))? {
            let kept = to.join(inside("image", &change.path));
            if fs::symlink_metadata(kept).is_ok_and(|meta| meta.is_file()) {
                let name = change.path.to_string_lossy();
                let kept = quoted(&inside("image", &change.path));
                let _ = writeln!(script, "compare {kept} {}", quoted(&name));
            }
        }
        script += END;
        if matches!(self.key.delivery, Delivery::Socket(_)) {
            fs::write(to.join(FEEDER), FEEDER_TEXT)?;
        }
        write_script(&to.join("run.sh"), &runner(&self.key.pm))?;
        write_script(&to.join("rebuild.sh"), &script)?;
        Ok(chain)
    }

    /// Lays the files of an image into a folder, at their full paths there.
    fn lay_into(&self, image: ImageId, folder: &Path) -> Result<Vec<Change>, Error> {
        let at = |path: &Path| folder.join(path.strip_prefix("/").unwrap_or(path));
        let changes = self.store.difference(None, image)?;
        for change in &changes {
            if let Some(parent) = at(&change.path).parent() {
                fs::create_dir_all(parent)?;
            }
        }
        let nowhere = |_: &Path| PathBuf::from("/nonexistent");
        lay(
            &changes,
            &View {
                at: &at,
                machine: &nowhere,
            },
        )?;
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runner_names_all_patterns() {
        let text = runner(&["/a/*".to_owned(), "it's".to_owned()]);
        assert!(
            text.contains(" --pm '/a/*' --pm 'it'\\''s' --force"),
            "{text}"
        );
        assert!(text.contains("|| exec \"$@\"\n"), "{text}");
    }
}
