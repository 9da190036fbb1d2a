//! Golden files of `dump` and `stat`. `BLESS=1 cargo test -p brownout-trace --test render` accepts
//! what they print now.

mod support;

use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use brownout_trace::dump::{DumpError, DumpOptions, Dumped, Format, Frame, Symbolize, dump};
use brownout_trace::stat::{Ending, Stat};
use brownout_trace::{
    ContextId, Error, Event, EventKind, ProcessId, Reader, TargetAddr, ThreadId, Writer,
    WriterOptions,
};
use support::{blocks_of, every_kind, meta, write};

fn golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, found).expect("the golden file can be written");
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    for (nth, (expected, found)) in expected.lines().zip(found.lines()).enumerate() {
        assert_eq!(expected, found, "{name}, line {}", nth + 1);
    }
    assert_eq!(expected, found, "{name}");
}

fn run(
    file: &[u8],
    options: &DumpOptions,
    symbols: Option<&mut dyn Symbolize>,
) -> (String, Result<Dumped, DumpError>) {
    let mut out = Vec::new();
    let mut reader = Reader::new(Cursor::new(file)).expect("a trace");
    let dumped = dump(&mut reader, &mut out, options, symbols);
    (String::from_utf8(out).expect("dumps are text"), dumped)
}

/// Knows what it was told, as real debug information would.
#[derive(Default)]
struct Names {
    contexts: Vec<(ContextId, ContextId, TargetAddr)>,
}

impl Symbolize for Names {
    fn observe(&mut self, event: &Event<'_>) {
        if let EventKind::Context {
            context,
            parent,
            return_addr,
        } = event.kind
        {
            self.contexts.push((context, parent, return_addr));
        }
    }

    fn frames(
        &mut self,
        process: ProcessId,
        pc: TargetAddr,
        mut context: ContextId,
        _max: usize,
    ) -> Vec<Frame> {
        assert_eq!(process, ProcessId(1));
        let mut frames = vec![Frame {
            function: Some("insert".to_owned()),
            file: Some("tree.c".to_owned()),
            line: Some((pc.0 & 0xfff) as u32),
            ..Frame::default()
        }];
        while let Some(&(_, parent, addr)) = self.contexts.iter().find(|(id, ..)| *id == context) {
            let module = Some("prog".to_owned());
            frames.push(Frame {
                module,
                module_offset: addr.0,
                ..Frame::default()
            });
            context = parent;
        }
        frames
    }
}

#[test]
fn text() {
    let file = write(&every_kind(), &WriterOptions::default(), true);
    let (text, dumped) = run(&file, &DumpOptions::default(), None);
    golden("dump.txt", &text);
    assert_eq!(dumped.expect("sound").events, every_kind().len() as u64);
    assert_eq!(text.lines().count(), every_kind().len(), "one event a line");
}

#[test]
fn text_with_symbols() {
    let file = write(&every_kind(), &WriterOptions::default(), true);
    let options = DumpOptions {
        range: 8..12,
        frames_max: 2,
        ..DumpOptions::default()
    };
    let (text, _) = run(&file, &options, Some(&mut Names::default()));
    golden("dump-symbols.txt", &text);
}

#[test]
fn json() {
    let file = write(&every_kind(), &WriterOptions::default(), true);
    let options = DumpOptions {
        format: Format::Json,
        ..DumpOptions::default()
    };
    let (text, _) = run(&file, &options, Some(&mut Names::default()));
    golden("dump.jsonl", &text);
    for line in text.lines() {
        let value: serde_json::Value = serde_json::from_str(line).expect("each line is JSON");
        assert!(value.is_object());
    }
}

#[test]
fn filters() {
    let file = write(&every_kind(), &WriterOptions::default(), true);
    let indices = |options: &DumpOptions| -> Vec<usize> {
        let options = DumpOptions {
            format: Format::Json,
            ..options.clone()
        };
        let (text, dumped) = run(&file, &options, None);
        dumped.expect("sound");
        let index = |line: &str| -> usize {
            let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
            value["index"].as_u64().expect("a number") as usize
        };
        text.lines().map(index).collect()
    };
    let all = DumpOptions::default();
    let of_thread = |thread: u32| -> Vec<usize> {
        let events = every_kind();
        (0..events.len())
            .filter(|&nth| events[nth].thread.0 == thread)
            .collect()
    };
    assert_eq!(
        indices(&DumpOptions {
            range: 3..6,
            ..all.clone()
        }),
        [3, 4, 5]
    );
    assert!(
        indices(&DumpOptions {
            range: 5..5,
            ..all.clone()
        })
        .is_empty()
    );
    assert_eq!(
        indices(&DumpOptions {
            range: 30..900,
            limit: Some(2),
            ..all.clone()
        }),
        [30, 31]
    );
    assert!(
        indices(&DumpOptions {
            limit: Some(0),
            ..all.clone()
        })
        .is_empty()
    );
    let two = DumpOptions {
        thread: Some(ThreadId(2)),
        ..all.clone()
    };
    assert_eq!(indices(&two), of_thread(2));
    assert_eq!(
        indices(&DumpOptions {
            limit: Some(1),
            ..two
        }),
        of_thread(2)[..1]
    );
}

#[test]
fn damage_ends_a_dump_or_is_stepped_over() {
    let mut file = write(&every_kind(), &blocks_of(10), true);
    let block = (0..file.len())
        .filter(|&at| file[at..].starts_with(&[0xb1, 0x6f, 0xd0, 0x93]))
        .nth(1)
        .expect("four blocks");
    file[block + 60] ^= 0x40;
    let (text, dumped) = run(&file, &DumpOptions::default(), None);
    assert_eq!(text.lines().count(), 10);
    assert!(matches!(
        dumped,
        Err(DumpError::Trace(Error::Corrupt { .. }))
    ));

    let options = DumpOptions {
        keep_going: true,
        ..DumpOptions::default()
    };
    let (text, dumped) = run(&file, &options, None);
    let dumped = dumped.expect("the rest is sound");
    assert_eq!(dumped.errors.len(), 1);
    assert_eq!(dumped.events, every_kind().len() as u64 - 10);
    let gap = text.lines().nth(10).expect("a line for the gap");
    assert!(
        gap.starts_with("-- events 10..20 are lost: the trace is corrupt at byte "),
        "{gap}"
    );

    let (_, cut) = run(&file[..block], &DumpOptions::default(), None);
    assert!(matches!(cut, Err(DumpError::Trace(Error::Truncated(_)))));
    let within = DumpOptions {
        range: 0..10,
        ..DumpOptions::default()
    };
    assert!(
        run(&file[..block], &within, None).1.is_ok(),
        "the range ends before the cut"
    );
}

fn stat(file: &[u8]) -> Stat {
    let mut reader = Reader::new(Cursor::new(file)).expect("a trace");
    Stat::collect(&mut reader).expect("memory can be read")
}

#[test]
fn stat_of_a_whole_trace() {
    let mut file = Vec::new();
    let mut writer =
        Writer::with_options(&mut file, &meta(), &blocks_of(16)).expect("memory takes everything");
    for event in &every_kind() {
        writer.push(event).expect("memory takes everything");
    }
    writer.set_duration(Duration::from_millis(1500));
    writer.finish().expect("memory takes everything");
    let stat = stat(&file);
    assert_eq!(stat.bytes, file.len() as u64);
    assert_eq!(stat.ending, Ending::Complete);
    // The size on disk is zstd's affair.
    let text = stat.to_string();
    let sizes = format!("{} bytes, {:.2} bytes", stat.bytes, stat.bytes_per_event);
    assert!(text.contains(&sizes), "{text}");
    golden("stat.txt", &text.replace(&sizes, "N bytes, N bytes"));
    let json = serde_json::to_value(&stat).expect("serialises");
    assert_eq!(json["by_kind"]["store"], 4);
    assert_eq!(json["files"]["1"]["stores"], 7);
    assert_eq!(json["ending"], "complete");
}

#[test]
fn stat_of_a_cut_off_trace() {
    let file = write(&every_kind(), &blocks_of(16), false);
    let cut = stat(&file[..file.len() - 1]);
    assert_eq!((cut.events, cut.blocks, cut.exit), (48, 3, None));
    assert!(
        matches!(cut.ending, Ending::CutOff { .. }),
        "{:?}",
        cut.ending
    );
    let whole_blocks = stat(&file);
    assert_eq!(whole_blocks.exit.as_deref(), Some("exit code -1"));
    assert!(
        matches!(whole_blocks.ending, Ending::CutOff { .. }),
        "it still lacks the footer"
    );
}
