//! The trace reader over arbitrary files: it must end, without a panic, whatever the bytes.
//!
//! Checksums stop most mutations at the block header; `trace_payload` fuzzes what lies behind
//! them. Seeds get the fuzzer past the file header:
//! `cargo run -p brownout-trace --example fuzz_seeds -- fuzz/corpus`.

#![no_main]

use std::io::{self, Cursor};

use brownout_trace::Reader;
use brownout_trace::dump::{DumpOptions, Format, dump};
use brownout_trace::stat::Stat;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let Ok(mut reader) = Reader::new(Cursor::new(file)) else {
        return;
    };
    let _ = Stat::collect(&mut reader);
    for format in [Format::Text, Format::Json] {
        if reader.seek_to_event(0).is_ok() {
            let options = DumpOptions {
                format,
                keep_going: true,
                ..DumpOptions::default()
            };
            let _ = dump(&mut reader, &mut io::sink(), &options, None);
        }
    }
    let middle = reader.position() / 2;
    if reader.seek_to_event(middle).is_ok() {
        let _ = reader.next();
    }
});
