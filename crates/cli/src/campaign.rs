//! A campaign's folder as a report and a picture, for `brownout report`.
//!
//! Guarantee: the folder is only read, and so is what another process writes to it meanwhile. What
//! the report says was looked at is what the folder says; that a campaign goes on is said, and then
//! nothing claims to be complete.

use std::path::Path;

use brownout_findings::{Limit, Report};
use brownout_fuzz::course;
use brownout_fuzz::folder::Folder;
use brownout_report::html::campaign::{Campaign, Moment};

use crate::exit::Failure;
use crate::terminal::{plain, quote};
use crate::{fuzz, race, symex};

/// What the page is made of.
pub struct Looked {
    pub report: Report,
    pub campaign: Campaign,
}

/// Reads a campaign's folder.
pub fn look(folder: &Path) -> Result<Looked, Failure> {
    let (layout, identity) = Folder::look(folder).map_err(|error| {
        Failure::usage(match error {
            brownout_fuzz::folder::FolderError::NotACampaign { .. } => format!(
                "{} is a folder, but not that of a campaign: name reports that --format json has written, or what --out has named",
                quote(folder)
            ),
            error => error.to_string(),
        })
    })?;
    let is_running = layout.is_in_use();
    let course = course::read(&layout.course()).map_err(|error| {
        let why = plain(&error);
        Failure::cannot_run(format!("cannot read {}: {why}", quote(layout.course())))
    })?;
    let (mut report, images) = match identity.kind.as_str() {
        "fuzz" => fuzz::seen(folder, &course)?,
        "race" => (race::seen(folder, &course)?, Vec::new()),
        "symex" => symex::seen(folder, &course)?,
        other => {
            return Err(Failure::usage(format!(
                "{} holds a campaign of `brownout {other}`, of which there is no page",
                quote(folder)
            )));
        }
    };
    // The first figure is what the program did to persistent memory.
    let has_touched = course.iter().any(|moment| {
        let mut figures = moment.coverage.iter();
        figures.any(|(_, value)| *value > 0)
    });
    if !has_touched && report.findings.is_empty() {
        report.coverage.limit(
            Limit::Untouched,
            "nothing was seen of persistent memory until now",
        );
    }
    if is_running != Some(false) {
        report.coverage.limit(
            Limit::Unfinished,
            match is_running {
                Some(_) => "the campaign goes on",
                None => "whether the campaign goes on is not known",
            },
        );
    }
    report.verdict = report.coverage.verdict(!report.findings.is_empty());
    let campaign = Campaign {
        title: format!(
            "{} of {}",
            report.analysed.analysis,
            report.analysed.program.join(" ")
        ),
        folder: folder.display().to_string(),
        is_running,
        moments: course.into_iter().map(drawn).collect(),
        images,
        is_of_paths: identity.kind == "symex",
    };
    Ok(Looked { report, campaign })
}

fn drawn(moment: course::Moment) -> Moment {
    Moment {
        seconds: moment.seconds,
        executions: moment.executions,
        coverage: moment.coverage,
        findings: moment.findings,
        is_first: moment.is_first,
    }
}
