//! `brownout symex`: paths that no test covers.

use std::fs;
use std::path::Path;

use brownout_findings::numbers::counted;
use brownout_findings::rules::Analysis;
use brownout_findings::{Analysed, Limit, Outcome, Report};
use brownout_fuzz::course::Moment;
use brownout_report::html::campaign::{Image, Way};
use brownout_symbols::Touches;
use brownout_symex::{
    Delivery, Error, Found, Losses, Numbers, Options, Over, Place, Progress, Proof, Searched, Step,
};

use crate::exit::{self, Failure};
use crate::progress::LiveLine;
use crate::reporting::{self, Again, Known, Subject};
use crate::resolve::Symex;
use crate::signals;
use crate::terminal::{message, plain, quote};

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Launch(error) => error.into(),
            Error::Usage(_) | Error::Folder(_) => Failure::usage(error.to_string()),
            error => Failure::cannot_run(error.to_string()),
        }
    }
}

struct Shown(LiveLine);

impl Progress for Shown {
    fn show(&mut self, numbers: &Numbers) {
        let Numbers {
            paths,
            waiting,
            queries,
            pm_paths,
            errors,
            others,
            seconds,
            ..
        } = numbers;
        let speed = *paths as f64 / seconds.max(0.001);
        self.0.show(&format!(
            "{seconds:.0} s: {paths} paths ({speed:.0}/s), {waiting} branches to turn, {queries} queries, {pm_paths} PM paths, {errors} errors, {others} others"
        ));
    }
}

fn listen(symex: &Symex) -> Result<(), Failure> {
    signals::tell(&symex.options.stop)
        .map_err(|error| Failure::cannot_run(format!("cannot set up signals: {error}")))
}

/// Searches, reports, and says how to exit.
pub fn symex(mut symex: Symex) -> Result<u8, Failure> {
    symex.options.command_line = reporting::words(&symex.command_line).unwrap_or_default();
    symex.options.touches = symex.report.touches();
    let known = Known::read(&symex.report)?;
    let options = &symex.options;
    listen(&symex)?;
    let mut shown = Shown(LiveLine::new());
    let searched = brownout_symex::symex(options, &mut shown);
    shown.0.clear();
    let searched = searched?;
    let mut outcome = Outcome {
        statistics: searched.numbers,
        touched: options.touches.as_ref().map(Touches::total),
        ..Outcome::default()
    };
    limit(&mut outcome, &searched, options);
    outcome.notes.extend(lost(&searched.losses));
    outcome.notes.extend(shares(&searched.numbers));
    outcome.notes.extend(searched.notes.iter().cloned());
    if let Some(out) = &options.out {
        outcome.notes.push(format!(
            "{} for the ways through code that uses persistent memory: {}",
            counted(searched.kept.len() as u64, "input"),
            quote(out.join("tests"))
        ));
        if options.resume {
            outcome.notes.push(format!(
                "{} had been kept before, and were run first",
                counted(searched.kept_before as u64, "input")
            ));
        }
    }
    let mut proofs = Vec::new();
    for (number, found) in searched.found.into_iter().enumerate() {
        let finding = told(&symex, number, &found)?;
        outcome.findings.push(finding);
        proofs.push(found.proof);
    }
    let words = std::iter::once(&options.program.program).chain(&options.program.args);
    let subject = Subject {
        analysed: Analysed {
            program: words.map(|w| w.to_string_lossy().into_owned()).collect(),
            ..Analysed::by(Analysis::Symex.name())
        },
        rules: options.check.rules,
        status: exit::OK,
        command_line: &symex.command_line,
        wanted: None,
    };
    let words = reporting::words(&symex.command_line);
    let replay = |number: usize| {
        Some(Again {
            words: words.clone()?,
            symex: proofs.get(number).cloned(),
            ..Again::default()
        })
    };
    reporting::conclude_each(&symex.report, &known, subject, outcome, replay)
}

/// What a campaign's folder says of it.
pub fn seen(folder: &Path, course: &[Moment]) -> Result<(Report, Vec<Image>), Failure> {
    let kept = brownout_symex::look(folder)?;
    let mut outcome = Outcome {
        statistics: serde_json::Map::new(),
        ..Outcome::default()
    };
    let paths = course.last().map_or(0, |moment| moment.executions);
    outcome.coverage.limit(
        Limit::Sampled,
        format!("{}; others may show more", were_run(paths)),
    );
    outcome.coverage.accept(&[Limit::Sampled]);
    let mut proofs = Vec::new();
    let mut behind = Vec::new();
    for found in kept.found {
        behind.push(found.behind);
        let mut finding = found.finding;
        finding.notes.push(origin(found.by_first).to_owned());
        outcome.findings.push(finding);
        proofs.push(found.proof);
    }
    let analysed = Analysed {
        program: kept.program,
        command: kept.command_line.clone(),
        ..Analysed::by(Analysis::Symex.name())
    };
    let replay = |number: usize| {
        Some(Again {
            words: kept.command_line.clone(),
            symex: proofs.get(number).cloned(),
            ..Again::default()
        })
        .filter(|again| !again.words.is_empty())
    };
    let (report, numbers) = reporting::assemble(&Known::default(), analysed, outcome, replay);
    let mut images: Vec<Image> = kept.kept.iter().enumerate().map(node).collect();
    for (number, finding) in numbers.iter().zip(&report.findings) {
        let behind = number.and_then(|number| behind[number]);
        if let Some(image) = behind.and_then(|at| images.get_mut(at)) {
            image.findings.push(finding.fingerprint.clone());
        }
    }
    Ok((report, images))
}

/// So many bytes of an input are drawn.
const DRAWN_MAX: usize = 48;

/// A path as it is drawn.
fn node((number, step): (usize, &Step)) -> Image {
    let (shown, is_cut) = match step.input.get(..DRAWN_MAX) {
        Some(begin) => (begin, step.input.len() > DRAWN_MAX),
        None => (step.input.as_slice(), false),
    };
    let more = if is_cut { "…" } else { "" };
    let input = format!("\"{}\"{more}", shown.escape_ascii());
    let (way, origin) = match (&step.turned, step.from) {
        (Some(branch), _) => (Way::Turned, format!("{input}, {branch} turned")),
        (None, Some(_)) => (Way::Made, format!("{input}, put together")),
        (None, None) => (Way::Root, input),
    };
    Image {
        number: number as u32,
        parent: step.from.map(|from| from as u32),
        way,
        origin,
        cases: 0,
        findings: Vec::new(),
    }
}

fn were_run(paths: u64) -> String {
    let verb = if paths == 1 { "was" } else { "were" };
    format!("{} {verb} run", counted(paths, "path"))
}

/// How a finding was come by.
fn origin(by_first: bool) -> &'static str {
    match by_first {
        true => "the first input shows it",
        false => "reached by solving for the input",
    }
}

/// What was not looked at.
fn limit(outcome: &mut Outcome<Numbers>, searched: &Searched, options: &Options) {
    let has_patterns = !options.pm_globs.is_empty();
    let (verb, source) = source(&options.delivery);
    let numbers = &searched.numbers;
    let coverage = &mut outcome.coverage;
    if numbers.pm_events == 0 {
        coverage.limit(Limit::Untouched, "no persistent memory was touched");
        if has_patterns {
            coverage.limit(
                Limit::Unmatched,
                "no file that matches --pm was mapped and used",
            );
        }
    }
    if numbers.learned_in_part > 0 {
        // What the rest of them would have shown is not known, so nothing is said of all branches.
        coverage.limit(
            Limit::Limits,
            format!(
                "{} that {} to be followed took too long, so that instructions that touch the input may be unknown",
                counted(numbers.learned_in_part, "run"),
                if numbers.learned_in_part == 1 { "was" } else { "were" }
            ),
        );
    }
    if numbers.read_most == 0 && numbers.copied_most > 0 {
        coverage.limit(
            Limit::Unsupported,
            format!(
                "the program has the kernel copy what comes {source}, and {verb} none of it itself: there is nothing to solve for"
            ),
        );
    } else if numbers.read_most == 0 {
        coverage.limit(
            Limit::Unsupported,
            format!("the program {verb} nothing {source}: there is nothing to solve for"),
        );
    } else if numbers.decisions == 0 && numbers.learned_in_part > 0 {
        coverage.limit(
            Limit::Unsupported,
            format!("no branch was seen that depends on what the program {verb} {source}"),
        );
    } else if numbers.decisions == 0 {
        coverage.limit(
            Limit::Unsupported,
            format!(
                "no branch of the program depends on what it {verb} {source}: there is nothing to solve for"
            ),
        );
    }
    // That is what a search for paths is, so nobody need accept it; but nobody is told that all was
    // looked at.
    coverage.limit(
        Limit::Sampled,
        format!(
            "{}{}; others may show more",
            were_run(numbers.paths),
            match searched.over {
                Over::All if may_have_missed(numbers) =>
                    ", and no branch that is known of is left to be turned, but not all could be solved for or led where they should",
                Over::All =>
                    ", and no branch is left that can be turned with as many bytes of input",
                _ => "",
            }
        ),
    );
    coverage.accept(&[Limit::Sampled]);
    if searched.over == Over::Stopped {
        coverage.limit(Limit::Interrupted, "ended before its time");
    }
    if numbers.explored > 0 || numbers.unexplored > 0 {
        let part = match numbers.explored_in_part {
            0 => String::new(),
            part => format!(", {part} of them only in part"),
        };
        outcome.notes.push(format!(
            "crashes were explored in {}{part}; {} with new behaviour of persistent memory were left",
            counted(numbers.explored, "path"),
            counted(numbers.unexplored, "path")
        ));
    }
    if numbers.endless > 0 {
        outcome.coverage.limit(
            Limit::Limits,
            format!(
                "{} did not end by {} in the time that a run has (--hang-after), or did hundreds of times more to persistent memory than is usual, and {} not judged",
                counted(numbers.endless, "run"),
                if numbers.endless == 1 {
                    "itself"
                } else {
                    "themselves"
                },
                if numbers.endless == 1 { "was" } else { "were" },
            ),
        );
    }
    if numbers.diverged > 0 {
        outcome.notes.push(format!(
            "{} of {} inputs did not lead where they should have led; each was run, and judged as what it is",
            numbers.diverged, numbers.turned
        ));
    }
}

/// What a program does to get its input, and where.
fn source(delivery: &Delivery) -> (&'static str, String) {
    match delivery {
        Delivery::Stdin => ("reads", "from its standard input".to_owned()),
        Delivery::File => ("reads", "from the file that '@@' stands for".to_owned()),
        Delivery::Place(Place { path, from: None }) => ("reads", format!("from {}", quote(path))),
        Delivery::Place(Place { path, .. }) => {
            ("reads", format!("in that range of {}", quote(path)))
        }
        Delivery::Argument | Delivery::Arguments { .. } => (
            "finds",
            "in the arguments that '@@1' and so on stand for".to_owned(),
        ),
        Delivery::Socket(_) => ("reads", "from those who connect to it".to_owned()),
    }
}

/// Where the time went, if there was enough to speak of.
fn shares(numbers: &Numbers) -> Option<String> {
    const LITTLE: f64 = 0.1;
    let Numbers {
        running_seconds,
        learning_seconds,
        opening_seconds,
        forking_seconds,
        lifting_seconds,
        solving_seconds,
        exploring_seconds,
        ..
    } = *numbers;
    let runs = running_seconds + learning_seconds;
    let all = runs + solving_seconds + exploring_seconds;
    if all < LITTLE {
        return None;
    }
    let program = (runs - opening_seconds - forking_seconds - lifting_seconds).max(0.0);
    let parts = [
        (program, "runs of the program"),
        (opening_seconds, "launches"),
        (forking_seconds, "forks"),
        (lifting_seconds, "what instructions compute"),
        (solving_seconds, "the solver"),
        (exploring_seconds, "explorations"),
    ];
    let parts = parts
        .iter()
        .filter(|(seconds, _)| *seconds > 0.0)
        .map(|(seconds, what)| format!("{:.0} % in {what}", 100.0 * seconds / all));
    let parts: Vec<String> = parts.collect();
    Some(format!("time: {}", parts.join(", ")))
}

/// What was not followed.
fn lost(losses: &Losses) -> Vec<String> {
    const NAMED: usize = 8;
    let mut notes = Vec::new();
    if !losses.unsupported.is_empty() {
        let mut forms: Vec<_> = losses.unsupported.iter().collect();
        forms.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
        let named = forms.iter().take(NAMED);
        let named: Vec<String> = named.map(|(name, n)| format!("{name} ({n})")).collect();
        notes.push(format!(
            "instructions that are not described, whose operands were taken to be what they were: {}{}",
            named.join(", "),
            if forms.len() > NAMED { "…" } else { "" }
        ));
    }
    let addresses: u64 = losses.addresses.values().sum();
    if addresses > 0 {
        let mut places: Vec<_> = losses.places.iter().collect();
        places.sort_by_key(|(place, count)| (std::cmp::Reverse(**count), *place));
        let named = places.iter().take(NAMED);
        let named: Vec<String> = named.map(|(place, n)| format!("{place} ({n})")).collect();
        notes.push(format!(
            "{addresses} times, at {}, an address depended on the input and was taken to be what it was: {}{}",
            counted(losses.addresses.len() as u64, "instruction"),
            named.join(", "),
            if places.len() > NAMED { "…" } else { "" }
        ));
    }
    if losses.arguments > 0 {
        notes.push(format!(
            "{} times, an argument of a system call depended on the input and was taken to be what it was",
            losses.arguments
        ));
    }
    if losses.stale > 0 {
        notes.push(format!(
            "{} times, a value was not what had been computed, because instructions that had changed it were not looked at; it was taken not to depend on the input",
            losses.stale
        ));
    }
    notes
}

/// A finding, with where it comes from.
fn told(
    symex: &Symex,
    number: usize,
    found: &Found,
) -> Result<brownout_findings::Finding, Failure> {
    let mut finding = found.finding.clone();
    finding.notes.push(origin(found.by_first).to_owned());
    let input = found.proof.input.escape_ascii().to_string();
    if input.len() <= 400 {
        finding.notes.push(format!("input: \"{input}\""));
    }
    let path = symex
        .folder
        .join(format!("{number:03}-{}.input", finding.rule.as_str()));
    let written =
        fs::create_dir_all(&symex.folder).and_then(|()| fs::write(&path, &found.proof.input));
    written.map_err(|error| {
        let why = plain(&error);
        Failure::cannot_run(format!("cannot write {}: {why}", quote(&path)))
    })?;
    let how = match found.proof.by_exploration {
        true => "the run that crashes, natively, on a copy of the files",
        false => "natively, on a copy of the files",
    };
    let folder = std::env::current_dir();
    let script = folder
        .and_then(|folder| brownout_symex::write_script(&symex.options, &folder, &path))
        .map_err(|error| {
            let why = plain(&error);
            Failure::cannot_run(format!(
                "cannot write a script beside {}: {why}",
                quote(&path)
            ))
        })?;
    finding.notes.push(format!("{how}: sh {}", quote(&script)));
    Ok(finding)
}

/// Runs the program on the input of a finding, and shows what comes of it.
pub fn replay(symex: Symex, fingerprint: &str, proof: &Proof) -> Result<u8, Failure> {
    listen(&symex)?;
    let is_same = brownout_symex::replay(&symex.options, proof)?;
    message(&match is_same {
        true => format!("finding {fingerprint} shows again"),
        false => format!("finding {fingerprint} did not show again"),
    });
    Ok(match is_same {
        true => symex.report.error_exitcode.unwrap_or(exit::FINDINGS),
        false => exit::OK,
    })
}

/// Whether something that a branch needs may not have been seen, solved for, or followed to its
/// end.
fn may_have_missed(numbers: &Numbers) -> bool {
    let Numbers {
        diverged,
        unknown,
        cut,
        endless,
        not_chosen,
        given_up,
        learned_in_part,
        unlearned,
        forgotten,
        many_ways,
        senseless,
        stale,
        ..
    } = numbers;
    [diverged, unknown, cut, endless, not_chosen, given_up]
        .into_iter()
        .chain([learned_in_part, unlearned, forgotten, many_ways])
        .chain([senseless, stale])
        .any(|count| *count > 0)
}
