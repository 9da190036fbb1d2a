//! `brownout report`: saved reports as a page, and two of them compared.
//!
//! Guarantee: the files are only read, and nothing but them is. A saved report names source files, and may come from anybody; so no file that
//! it names is opened, and the page has the source lines that the report has.

use std::env;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use brownout_findings::Report;
use brownout_findings::numbers::counted;
use brownout_report::compare::{Change, Comparison};
use brownout_report::{Options, html, redact, saved};

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
    let mut reports: Vec<Report> = pages
        .files
        .iter()
        .map(|path| load(path))
        .collect::<Result<_, _>>()?;
    if pages.redact {
        let home = env::var("HOME").ok();
        let folder = env::current_dir().ok();
        let folder = folder.as_deref().and_then(Path::to_str);
        for report in &mut reports {
            redact::paths(report, home.as_deref(), folder)
                .map_err(|error| Failure::cannot_run(format!("cannot shorten paths: {error}")))?;
        }
    }
    let options = Options {
        folder: env::current_dir().ok(),
        ..Options::default()
    };
    match (pages.compare, reports.as_slice()) {
        (true, [old, new]) => {
            let comparison = Comparison::of(old, new);
            print(comparison.to_string().as_bytes())?;
            if let Some(output) = &pages.output {
                write(output, |out| html::compare(&comparison, &options, out))?;
                open(pages, output);
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
                    open(pages, output);
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

/// Has a browser show the page, if that is asked for. The page is there whether or not it can.
fn open(pages: &Pages, page: &Path) {
    if !pages.open {
        return;
    }
    // A relative name could be taken for an option.
    let page = fs::canonicalize(page).unwrap_or_else(|_| page.to_owned());
    let chosen = env::var_os("BROWSER").filter(|browser| !browser.is_empty());
    let browser = chosen.unwrap_or_else(|| "xdg-open".into());
    let mut command = Command::new(&browser);
    command
        .arg(&page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => message(&format!(
            "{} cannot show the page ({status}); open {} yourself",
            quote(Path::new(&browser)),
            quote(&page)
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => message(&format!(
            "there is no {} to show the page; open {} yourself, or name a browser in the variable BROWSER",
            quote(Path::new(&browser)),
            quote(&page)
        )),
        Err(error) => message(&format!(
            "cannot start {}: {}; open {} yourself",
            quote(Path::new(&browser)),
            plain(&error),
            quote(&page)
        )),
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
