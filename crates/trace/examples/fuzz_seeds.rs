//! Writes seeds for the fuzz targets: small traces with every kind of event, and bare payloads.
//!
//! ```text
//! cargo run -p brownout-trace --example fuzz_seeds -- fuzz/corpus
//! ```

#[path = "../tests/support/mod.rs"]
mod support;

use std::error::Error;
use std::fs;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let corpus = PathBuf::from(std::env::args_os().nth(1).ok_or("give the corpus folder")?);
    let (files, payloads) = (corpus.join("trace_reader"), corpus.join("trace_payload"));
    fs::create_dir_all(&files)?;
    fs::create_dir_all(&payloads)?;
    let events = support::every_kind();
    for per_block in [1, 7, 100] {
        for finish in [true, false] {
            let name = format!("blocks-of-{per_block}-{finish}");
            let file = support::write(&events, &support::blocks_of(per_block), finish);
            fs::write(files.join(name), file)?;
        }
    }
    for chunk in [events.len(), 5] {
        for (nth, events) in events.chunks(chunk).enumerate() {
            // The target reads the number of events from the first two bytes.
            let mut seed = (events.len() as u16).to_le_bytes().to_vec();
            seed.extend(support::payload_of(events));
            fs::write(payloads.join(format!("payload-{chunk}-{nth}")), seed)?;
        }
    }
    Ok(())
}
