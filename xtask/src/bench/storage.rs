//! What a campaign leaves on the disk, and whether all of it can be used: `tree`, `repro` and
//! `export`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use brownout_tests::layout;

use super::Options;
use super::campaigns::{SEED, report_of_map};
use super::common::verdict;
use super::places::Places;

const MAP: &str = "btree";
/// Mebibytes after an hour.
const GOAL_MIB: f64 = 300.0;
/// So many normal images are made again by their commands.
const REBUILT: usize = 100;

/// One campaign of an hour, or of `--time`.
pub fn bench(options: &Options) -> Result<()> {
    let time = options.time_or(if options.quick { 60 } else { 3600 });
    let places = Places::new()?;
    let folder = places.pools.join("");
    fs::write(folder.join("seed"), SEED)?;
    let words = ["--seeds", "seed", "--time", &format!("{time}s")];
    let report = report_of_map(MAP, &folder, &words)?;
    let mib = blocks(&folder.join("out"))? as f64 / 2048.0;
    println!(
        "\n{MAP}, {time} s, {} executions: {mib:.1} MiB on the disk (goal: below {GOAL_MIB} MiB after an hour): {}",
        report.statistics["executions"],
        verdict(mib < GOAL_MIB)
    );
    let tree = tool(&folder, &["tree", "out"])?;
    ensure!(tree.status.success(), "tree fails: {}", said(&tree));
    let images = Image::all(&String::from_utf8_lossy(&tree.stdout))?;
    let cases = numbers(&folder.join("out/queue"))?;
    ensure!(!images.is_empty() && !cases.is_empty(), "nothing was kept");
    for case in &cases {
        let ran = tool(&folder, &["repro", "out", case])?;
        ensure!(
            matches!(ran.status.code(), Some(0 | 1)),
            "repro of {case} fails: {}",
            said(&ran)
        );
        export(&folder, case)?;
    }
    println!(
        "tree shows {} images; repro and export work on all {} test cases.",
        images.len(),
        cases.len()
    );
    let normal: Vec<&Image> = images.iter().filter(|image| image.is_normal).collect();
    let wanted = spread(&normal, REBUILT);
    let (mut by_tool, mut natively) = (0, 0);
    for image in &wanted {
        let id = format!("img:{}", image.number);
        export(&folder, &id)?;
        natively += usize::from(is_rebuilt(&folder, None)?);
        ensure!(
            is_rebuilt(&folder, Some(&layout::brownout()))?,
            "{id} is not what its commands make"
        );
        by_tool += 1;
    }
    println!(
        "{by_tool} of {} normal images were made again, byte for byte (goal: {REBUILT}), {natively} of them natively: libpmemobj keeps addresses.",
        normal.len()
    );
    Ok(())
}

/// An image as `tree` shows it.
struct Image {
    number: u32,
    /// A run has left it behind, not a crash.
    is_normal: bool,
}

impl Image {
    fn all(tree: &str) -> Result<Vec<Image>> {
        let lines = tree.lines().filter_map(|line| {
            let line = line.trim_start().strip_prefix("img:")?;
            line.split_once(' ')
        });
        lines
            .map(|(number, rest)| {
                Ok(Image {
                    number: number.parse().context("no number of an image")?,
                    is_normal: rest.starts_with("left by ")
                        && !rest.starts_with("left by a crash "),
                })
            })
            .collect()
    }
}

/// So many of them, from the first to the last.
fn spread<'a, T>(all: &[&'a T], count: usize) -> Vec<&'a T> {
    let count = count.min(all.len());
    (0..count).map(|n| all[n * all.len() / count]).collect()
}

fn tool(folder: &Path, words: &[&str]) -> Result<Output> {
    let mut command = Command::new(layout::brownout());
    command.current_dir(folder).arg("fuzz").args(words);
    command.output().context("cannot run brownout")
}

fn said(output: &Output) -> String {
    format!(
        "{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Anew, into `exported`.
fn export(folder: &Path, id: &str) -> Result<()> {
    let exported = folder.join("exported");
    if exported.exists() {
        fs::remove_dir_all(exported)?;
    }
    let done = tool(folder, &["export", "out", id, "-o", "exported"])?;
    ensure!(
        done.status.success(),
        "export of {id} fails: {}",
        said(&done)
    );
    Ok(())
}

/// Runs the script of `exported`, natively or with the tool, and says whether it has made the
/// campaign's files.
fn is_rebuilt(folder: &Path, brownout: Option<&Path>) -> Result<bool> {
    let mut script = Command::new(folder.join("exported/rebuild.sh"));
    script.current_dir(folder).env_remove("BROWNOUT");
    if let Some(brownout) = brownout {
        script.env("BROWNOUT", brownout);
    }
    let made = script.output().context("cannot run rebuild.sh")?;
    let text = String::from_utf8_lossy(&made.stderr);
    Ok(made.status.success()
        && text.contains("as in the campaign, byte for byte")
        && !text.contains("not as in the campaign"))
}

/// The numbers of the test cases in a queue.
fn numbers(queue: &Path) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(queue)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let number = name
            .strip_prefix("id:")
            .and_then(|rest| rest.split(',').next());
        let number: u64 = number
            .and_then(|number| number.parse().ok())
            .with_context(|| format!("{name} is no test case"))?;
        all.push(number);
    }
    all.sort_unstable();
    Ok(all.iter().map(u64::to_string).collect())
}

/// Blocks of 512 bytes that a folder takes.
fn blocks(path: &Path) -> Result<u64> {
    let meta = fs::symlink_metadata(path)?;
    let mut blocks = meta.blocks();
    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            blocks += self::blocks(&entry?.path())?;
        }
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_read() {
        let tree = "img:0 made by \"img:9 left by x\"\n  img:1 left by \"a crash \", 2 test cases\n    img:12 left by a crash in \"i 1\" at ordering point 3, everything survives\n";
        let images = Image::all(tree).expect("a tree");
        let all: Vec<(u32, bool)> = images.iter().map(|i| (i.number, i.is_normal)).collect();
        assert_eq!(all, [(0, false), (1, true), (12, false)]);
        assert!(Image::all("img:x left by\n").is_err());
    }

    #[test]
    fn what_is_chosen_is_spread() {
        let numbers: Vec<u32> = (0..10).collect();
        let all: Vec<&u32> = numbers.iter().collect();
        assert_eq!(spread(&all, 5), [&0, &2, &4, &6, &8]);
        assert_eq!(spread(&all, 20), all);
        assert!(spread::<u32>(&[], 5).is_empty());
    }
}
