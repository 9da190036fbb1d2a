//! `brownout report`: saved reports and campaigns as a page, written or served, and two reports
//! compared.
//!
//! Guarantee: the files are only read, and so are the folders of campaigns. A saved report names
//! source files, and may come from anybody; so no file that it names is opened, and the page has
//! the source lines that the report has. What a campaign names is opened if it is a source file
//! below the working folder.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use brownout_findings::Report;
use brownout_findings::numbers::counted;
use brownout_report::compare::{Change, Comparison};
use brownout_report::html::campaign::Campaign;
use brownout_report::{Options, excerpts, html, redact, saved};

use crate::campaign::{self, Looked};
use crate::destination;
use crate::exit::{self, Failure};
use crate::reporting::{no_terminal, spare_inputs};
use crate::resolve::{Pages, plain};
use crate::shell::print;
use crate::signals;
use crate::terminal::{message, quote};
use crate::watch::{self, Server};

/// What a page is made of.
struct Made {
    reports: Vec<Report>,
    campaigns: Vec<Campaign>,
}

impl Made {
    fn read(pages: &Pages) -> Result<Made, Failure> {
        let mut made = Made {
            reports: Vec::new(),
            campaigns: Vec::new(),
        };
        let folder = env::current_dir().ok();
        for path in &pages.files {
            if path.is_dir() {
                let Looked {
                    mut report,
                    campaign,
                } = campaign::look(path)?;
                if let Some(folder) = &folder {
                    excerpts::attach_below(&mut report, folder);
                }
                made.reports.push(report);
                made.campaigns.push(campaign);
            } else {
                let report = saved::load(path);
                made.reports
                    .push(report.map_err(|error| Failure::usage(error.to_string()))?);
            }
        }
        if pages.redact {
            let home = env::var("HOME").ok();
            let folder = folder.as_deref().and_then(Path::to_str);
            let shorten = redact::Shorten::new(home.as_deref(), folder);
            for report in &mut made.reports {
                redact::paths(report, &shorten).map_err(|error| {
                    Failure::cannot_run(format!("cannot shorten paths: {error}"))
                })?;
            }
            for campaign in &mut made.campaigns {
                campaign.title = shorten.text(&campaign.title);
                campaign.folder = shorten.text(&campaign.folder);
                for image in &mut campaign.images {
                    image.origin = shorten.text(&image.origin);
                }
            }
        }
        Ok(made)
    }

    fn render(&self, is_watched: bool, out: &mut dyn Write) -> io::Result<()> {
        html::render_with(&self.reports, &self.campaigns, is_watched, &options(), out)
    }
}

fn options() -> Options {
    Options {
        folder: env::current_dir().ok(),
        ..Options::default()
    }
}

/// Makes the page, or compares.
pub fn report(pages: &Pages) -> Result<u8, Failure> {
    if let Some(output) = &pages.output {
        spare_inputs(&pages.files, output)?;
    }
    if let Some(port) = pages.watch {
        return serve(pages, port);
    }
    let made = Made::read(pages)?;
    match (pages.compare, made.reports.as_slice()) {
        (true, [old, new]) => {
            let comparison = Comparison::of(old, new);
            print(comparison.to_string().as_bytes())?;
            if let Some(output) = &pages.output {
                write(output, |out| html::compare(&comparison, &options(), out))?;
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
                    write(output, |out| made.render(false, out))?;
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
                    made.render(false, &mut page).map_err(cannot_make)?;
                    print(&page)?;
                }
            }
            Ok(exit::OK)
        }
    }
}

fn cannot_make(error: io::Error) -> Failure {
    Failure::cannot_run(format!("cannot make the page: {error}"))
}

/// Serves the page until the user ends it.
fn serve(pages: &Pages, port: u16) -> Result<u8, Failure> {
    // Whatever is wrong with the files is said before anybody waits for a page.
    Made::read(pages)?;
    let stop = Default::default();
    signals::tell(&stop)
        .map_err(|error| Failure::cannot_run(format!("cannot set up signals: {error}")))?;
    let server = Server::bind(port).map_err(|error| {
        let why = plain(&error);
        Failure::cannot_run(match port {
            0 => format!("cannot serve a page on this machine: {why}"),
            port => format!("cannot serve a page at port {port} of this machine: {why}"),
        })
    })?;
    let url = server.url();
    message(&format!("the page is at {url} until Ctrl-C"));
    if pages.open {
        show(OsStr::new(&url), &url);
    }
    let make = || {
        let made = Made::read(pages).map_err(|failure| failure.sentence)?;
        let mut page = Vec::new();
        made.render(true, &mut page).map_err(|e| e.to_string())?;
        let now = html::watched(&made.reports, &made.campaigns).map_err(|e| e.to_string())?;
        Ok(watch::Pages {
            page,
            now: now.into_bytes(),
        })
    };
    server
        .serve(&stop, make)
        .map_err(|error| Failure::cannot_run(format!("cannot go on serving: {}", plain(&error))))?;
    Ok(exit::OK)
}

/// Has a browser show the page, if that is asked for. The page is there whether or not it can.
fn open(pages: &Pages, page: &Path) {
    if !pages.open {
        return;
    }
    // A relative name could be taken for an option.
    let page = fs::canonicalize(page).unwrap_or_else(|_| page.to_owned());
    show(page.as_os_str(), &quote(&page));
}

/// Has a browser show a file or an address.
fn show(page: &OsStr, name: &str) {
    let chosen = env::var_os("BROWSER").filter(|browser| !browser.is_empty());
    let browser = chosen.unwrap_or_else(|| "xdg-open".into());
    let mut command = Command::new(&browser);
    command
        .arg(page)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let browser = quote(Path::new(&browser));
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => message(&format!(
            "{browser} cannot show the page ({status}); open {name} yourself"
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => message(&format!(
            "there is no {browser} to show the page; open {name} yourself, or name a browser in the variable BROWSER"
        )),
        Err(error) => message(&format!(
            "cannot start {browser}: {}; open {name} yourself",
            plain(&error)
        )),
    }
}

fn write(
    path: &Path,
    render: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let cannot = |error: &io::Error| {
        Failure::usage(format!("cannot write {}: {}", quote(path), plain(error)))
    };
    let file = destination::create(path).map_err(|error| cannot(&error))?;
    let mut out = BufWriter::new(file);
    render(&mut out)
        .and_then(|()| out.flush())
        .map_err(|error| cannot(&error))
}
