//! What the benchmarks share: options, rounds, medians.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Enough for a median that one disturbed round does not move.
pub const ROUNDS_DEFAULT: usize = 5;

/// With `--quick`.
pub const ROUNDS_QUICK: usize = 3;

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Measured rounds; each benchmark has its default.
    pub rounds: Option<usize>,
    /// Only cases whose name contains this.
    pub only: Option<String>,
    /// Where the raw times go.
    pub json: Option<PathBuf>,
    /// Less work, for a first impression.
    pub quick: bool,
    /// The checker's memory instead of its speed.
    pub memory: bool,
    /// The parts of a benchmark that are wanted; if none is, those that it has by default.
    pub parts: Vec<String>,
    /// Seconds for each campaign of a part that lets one say.
    pub time: Option<u64>,
    /// Only this strategy, of a benchmark that compares them.
    pub strategy: Option<String>,
}

impl Options {
    pub fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options::default();
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .with_context(|| format!("{word} wants a value"))
            };
            match word {
                "--rounds" => {
                    let rounds = value()?.parse().context("--rounds wants a number")?;
                    ensure!(rounds > 0, "--rounds wants at least 1");
                    options.rounds = Some(rounds);
                }
                "--only" => options.only = Some(value()?.to_owned()),
                "--json" => options.json = Some(PathBuf::from(value()?)),
                "--quick" => options.quick = true,
                "--memory" => options.memory = true,
                "--part" => options.parts.push(value()?.to_owned()),
                "--time" => options.time = Some(duration(value()?)?),
                "--strategy" => options.strategy = Some(value()?.to_owned()),
                other => bail!("no such benchmark or option: {other}"),
            }
        }
        Ok(options)
    }

    /// The cases that are asked for; at least one.
    pub fn select<C>(&self, cases: Vec<C>, name: impl Fn(&C) -> &str) -> Result<Vec<C>> {
        let mut cases = cases;
        if let Some(only) = &self.only {
            cases.retain(|case| name(case).contains(only));
            ensure!(
                !cases.is_empty(),
                "no case of this benchmark has {only} in its name"
            );
        }
        Ok(cases)
    }

    /// The parts that are asked for, of all that a benchmark has; those by default if none is.
    pub fn select_parts<'p>(&self, all: &[&'p str], default: &[&'p str]) -> Result<Vec<&'p str>> {
        for part in &self.parts {
            ensure!(
                all.contains(&part.as_str()),
                "this benchmark has no part {part}; it has {}",
                all.join(", ")
            );
        }
        let is_wanted = |part: &&str| match self.parts.is_empty() {
            true => default.contains(part),
            false => self.parts.iter().any(|wanted| wanted == part),
        };
        Ok(all.iter().copied().filter(is_wanted).collect())
    }

    /// How long a campaign may take, in seconds.
    pub fn time_or(&self, default: u64) -> u64 {
        self.time.unwrap_or(default)
    }

    /// Writes the raw times, if a file is asked for.
    pub fn write_json<'a>(&self, cases: impl Iterator<Item = (&'a str, &'a Times)>) -> Result<()> {
        let rows = cases
            .map(|(name, times)| {
                serde_json::json!({
                    "name": name,
                    "native_s": seconds(&times.native),
                    "tool_s": seconds(&times.tool),
                })
            })
            .collect();
        self.write_rows(rows)
    }

    /// Writes these rows, if a file is asked for.
    pub fn write_rows(&self, rows: Vec<serde_json::Value>) -> Result<()> {
        let Some(path) = &self.json else {
            return Ok(());
        };
        let text = format!("{:#}\n", serde_json::Value::from(rows));
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// How often what is timed is run.
    pub fn rounds(&self) -> usize {
        self.rounds.unwrap_or(match self.quick {
            true => ROUNDS_QUICK,
            false => ROUNDS_DEFAULT,
        })
    }
}

/// Seconds, from `90`, `90s`, `10m` or `1h`.
fn duration(text: &str) -> Result<u64> {
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, 's')) => (&text[..at], 1),
        Some((at, 'm')) => (&text[..at], 60),
        Some((at, 'h')) => (&text[..at], 3600),
        _ => (text, 1),
    };
    let number: Option<u64> = number.parse().ok().filter(|number| *number > 0);
    let seconds = number.and_then(|number| number.checked_mul(unit));
    seconds.context("--time wants a time such as 90s, 10m or 1h")
}

/// Which of the two is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Native,
    Tool,
}

/// What a case took, round by round.
#[derive(Debug, Default)]
pub struct Times {
    pub native: Vec<Duration>,
    pub tool: Vec<Duration>,
}

impl Times {
    /// How many times slower the tool is; of medians.
    pub fn ratio(&self) -> f64 {
        median(&self.tool) / median(&self.native)
    }
}

/// Runs all cases `rounds` times in turn, after an unmeasured round for page cache and first-time
/// work.
pub fn interleave(
    cases: usize,
    rounds: usize,
    mut run: impl FnMut(usize, Side) -> Result<Duration>,
) -> Result<Vec<Times>> {
    let mut all: Vec<Times> = (0..cases).map(|_| Times::default()).collect();
    for round in 0..=rounds {
        for (index, times) in all.iter_mut().enumerate() {
            let native = run(index, Side::Native)?;
            let tool = run(index, Side::Tool)?;
            if round > 0 {
                times.native.push(native);
                times.tool.push(tool);
            }
        }
        match round {
            0 => eprintln!("warm-up done"),
            _ => eprintln!("round {round} of {rounds} done"),
        }
    }
    Ok(all)
}

/// The same surroundings for both sides.
pub fn set_surroundings(command: &mut Command, folder: &Path) {
    command
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Native libpmem calls msync on ordinary files unless told; under the tool it takes the
        // flush path.
        .env("PMEM_IS_PMEM_FORCE", "1")
        .env("LC_ALL", "C.UTF-8");
}

pub fn expect_success(name: &str, side: Side, output: &Output) -> Result<()> {
    ensure!(
        output.status.success(),
        "{name} ended with {} {}\n{}",
        output.status,
        match side {
            Side::Native => "natively",
            Side::Tool => "under the tool",
        },
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

pub fn seconds(times: &[Duration]) -> Vec<f64> {
    times.iter().map(Duration::as_secs_f64).collect()
}

pub fn median(times: &[Duration]) -> f64 {
    median_of(&seconds(times))
}

/// Of nothing it is not a number.
pub fn median_of(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// `None` of nothing.
pub fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (logs / ratios.len() as f64).exp())
}

pub fn verdict(met: bool) -> &'static str {
    match met {
        true => "met",
        false => "**missed**",
    }
}

pub fn text_of(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        let ms = |n: u64| Duration::from_millis(n);
        assert!((median(&[ms(5), ms(1), ms(9)]) - 0.005).abs() < 1e-12);
        assert!((median(&[ms(4), ms(2)]) - 0.003).abs() < 1e-12);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn geometric_means() {
        let mean = geometric_mean(&[1.0, 4.0]).expect("of two numbers");
        assert!((mean - 2.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
    }

    #[test]
    fn both_sides_take_turns_and_the_first_round_does_not_count() {
        let mut calls = Vec::new();
        let times = interleave(2, 2, |index, side| {
            calls.push((index, side));
            Ok(Duration::from_secs(calls.len() as u64))
        })
        .expect("nothing fails");
        use Side::{Native, Tool};
        let round = [(0, Native), (0, Tool), (1, Native), (1, Tool)];
        assert_eq!(calls, [round, round, round].concat());
        let secs = |list: [u64; 2]| list.map(Duration::from_secs);
        assert_eq!(times[0].native, secs([5, 9]));
        assert_eq!(times[1].tool, secs([8, 12]));
    }

    #[test]
    fn options_are_understood_or_refused() {
        let options = Options::parse(&["--rounds", "3", "--quick", "--only", "btree"]);
        let expected = Options {
            rounds: Some(3),
            only: Some("btree".into()),
            quick: true,
            ..Options::default()
        };
        assert_eq!(options.expect("all are known"), expected);
        for words in [&["--rounds"][..], &["--rounds", "0"], &["--fast"], &["run"]] {
            assert!(Options::parse(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn times_are_understood_or_refused() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("10m", 600), ("1h", 3600)] {
            assert_eq!(duration(text).ok(), Some(seconds), "{text}");
        }
        for text in ["", "s", "0", "-1", "1d", "1.5h", "99999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parts_are_selected_in_their_order() {
        let parts = |words: &[&str]| {
            let options = Options::parse(words)?;
            let selected = options.select_parts(&["a", "b", "c"], &["a", "b"])?;
            anyhow::Ok(selected.join(" "))
        };
        assert_eq!(parts(&[]).ok().as_deref(), Some("a b"));
        let both = parts(&["--part", "c", "--part", "b"]);
        assert_eq!(both.ok().as_deref(), Some("b c"));
        assert!(parts(&["--part", "d"]).is_err());
    }

    #[test]
    fn selecting_nothing_is_an_error() {
        let options = Options {
            only: Some("b".into()),
            ..Options::default()
        };
        assert_eq!(
            options.select(vec!["a", "ab"], |name| name).ok(),
            Some(vec!["ab"])
        );
        assert!(options.select(vec!["a"], |name| name).is_err());
    }
}
