//! JSON: the report itself, as `docs/report.md` and `schema/report.schema.json` describe it.

use std::io::{self, Write};

use brownout_findings::{Report, SCHEMA_VERSION};

/// Writes the report, indented, with a final line end.
pub fn render(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    writeln!(out)
}

/// Reads a report that [`render`] wrote; the error is one sentence.
pub fn parse(json: &[u8]) -> Result<Report, String> {
    let report: Report = serde_json::from_slice(json)
        .map_err(|error| format!("this is no report of the form json: {error}"))?;
    match report.schema > SCHEMA_VERSION {
        true => Err(format!(
            "the report has schema {}, and this version knows schemas up to {SCHEMA_VERSION}; take a newer version",
            report.schema
        )),
        false => Ok(report),
    }
}
