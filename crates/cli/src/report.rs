//! `brownout report`: saved reports as a page, and two of them compared.
//!
//! Guarantee: the files are only read, and nothing but them is. A saved report names source files, and may come from anybody; so no file that
//! it names is opened, and the page has the source lines that the report has.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use brownout_findings::Report;
use brownout_findings::numbers::counted;
use brownout_report::compare::{Change, Comparison};
use brownout_report::{Options, html, saved};

use crate::exit::{self, Failure};
use crate::resolve::{Pages, plain};
use crate::shell::print;
use crate::terminal::{message, quote};

/// Makes the page, or compares.
pub fn report(pages: &Pages) -> Result<u8, Failure> {
    if let Some(output) = &pages.output {
        spare_inputs(&pages.files, output)?;
    }
    let load = |path| saved::load(path).map_err(|error| Failure::usage(error.to_string()));
    let reports: Vec<Report> = pages
        .files
        .iter()
        .map(|path| load(path))
        .collect::<Result<_, _>>()?;
    let options = Options {
        folder: std::env::current_dir().ok(),
        ..Options::default()
    };
    match (pages.compare, reports.as_slice()) {
        (true, [old, new]) => {
            let comparison = Comparison::of(old, new);
            print(comparison.to_string().as_bytes())?;
            if let Some(output) = &pages.output {
                write(output, |out| html::compare(&comparison, &options, out))?;
            }
            Ok(match comparison.count(Change::New) {
                0 => exit::OK,
                _ => exit::FINDINGS,
            })
        }
        (true, others) => Err(Failure::usage(format!(
            "--compare takes two reports, the old one and the new one, and here {} given",
            match others.len() {
                1 => "is one".to_owned(),
                n => format!("are {n}"),
            }
        ))),
        (false, reports) => {
            match &pages.output {
                Some(output) => {
                    write(output, |out| html::render(reports, &options, out))?;
                    let findings = reports.iter().map(|report| report.findings.len() as u64);
                    message(&format!(
                        "{} with {} in {}",
                        counted(reports.len() as u64, "report"),
                        counted(findings.sum(), "finding"),
                        quote(output)
                    ));
                }
                None if io::stdout().is_terminal() => return Err(no_terminal()),
                None => {
                    let mut page = Vec::new();
                    html::render(reports, &options, &mut page).map_err(|error| {
                        Failure::cannot_run(format!("cannot make the page: {error}"))
                    })?;
                    print(&page)?;
                }
            }
            Ok(exit::OK)
        }
    }
}

/// A page on the terminal is of no use to anybody.
pub fn no_terminal() -> Failure {
    Failure::usage("a page is for a browser, not for the terminal: say -o FILE.html")
}

/// A slip of the hand must not cost a report.
pub fn spare_inputs(files: &[PathBuf], output: &Path) -> Result<(), Failure> {
    let Ok(real) = fs::canonicalize(output) else {
        return Ok(());
    };
    match files
        .iter()
        .any(|file| fs::canonicalize(file).is_ok_and(|file| file == real))
    {
        true => Err(Failure::usage(format!(
            "{} is one of the reports, which would be replaced; choose another name for -o",
            quote(output)
        ))),
        false => Ok(()),
    }
}

fn write(
    path: &Path,
    render: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let cannot = |error: &io::Error| {
        Failure::usage(format!("cannot write {}: {}", quote(path), plain(error)))
    };
    let file = File::create(path).map_err(|error| cannot(&error))?;
    let mut out = BufWriter::new(file);
    render(&mut out)
        .and_then(|()| out.flush())
        .map_err(|error| cannot(&error))
}
