//! Damaged, cut-off and made-up files: an error that says where, and everything before it.

mod support;

use std::io::{self, Cursor, Write};

use brownout_random::Random;
use brownout_trace::{Error, Event, Meta, Reader, Writer, WriterOptions};
use support::{block_offsets, blocks_of, every_kind, payload_of, read, render, write};

#[test]
fn cut_at_any_byte_the_whole_blocks_are_read() {
    let events = every_kind();
    let per_block = 4;
    let file = write(&events, &blocks_of(per_block), true);
    let offsets = block_offsets(&file);
    assert_eq!(offsets.len(), events.len().div_ceil(per_block as usize) + 1);
    let rendered: Vec<_> = events.iter().map(render).collect();
    for len in 0..file.len() {
        let (read, error) = read(&file[..len]);
        // A block is whole if the next one's beginning is in reach.
        let whole = offsets.iter().skip(1).filter(|&&end| end <= len).count();
        let expected = (whole * per_block as usize).min(events.len());
        assert_eq!(read, rendered[..expected], "cut at {len}");
        match error {
            Some(Error::NotATrace { .. }) if len < offsets[0] => {}
            Some(Error::Truncated(place)) if len >= offsets[0] => {
                assert_eq!(place.offset, len as u64);
                assert_eq!(place.event, expected as u64);
                assert_eq!(place.block, whole as u64);
            }
            other => panic!("cut at {len}: {other:?}"),
        }
    }
}

#[test]
fn any_flipped_bit_is_reported_and_costs_only_its_block() {
    let events = every_kind();
    let per_block = 6usize;
    let file = write(&events, &blocks_of(per_block as u32), true);
    let offsets = block_offsets(&file);
    let rendered: Vec<_> = events.iter().map(render).collect();
    for bit in 0..file.len() * 8 {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let (read, error) = read(&damaged);
        let error = error.unwrap_or_else(|| panic!("bit {bit} went unnoticed"));
        let Some(block) = offsets.iter().rposition(|&start| start <= bit / 8) else {
            assert!(matches!(
                error,
                Error::NotATrace { .. } | Error::UnsupportedVersion { .. }
            ));
            continue;
        };
        let before = (block * per_block).min(events.len());
        assert_eq!(read, rendered[..before], "bit {bit}");
        let place = error
            .place()
            .unwrap_or_else(|| panic!("bit {bit}: {error}"));
        assert_eq!(
            (place.block, place.event),
            (block as u64, before as u64),
            "bit {bit}"
        );

        // Behind the damage everything is there again.
        let mut reader = Reader::new(Cursor::new(&damaged)).expect("the header is whole");
        while let Ok(Some(_)) = reader.next() {}
        let gap = reader.resync().expect("memory can be read");
        if block + 1 == offsets.len() {
            assert_eq!(gap, None, "nothing follows the footer");
            assert!(reader.next().is_err(), "the error stands");
            continue;
        }
        let gap = gap.unwrap_or_else(|| panic!("bit {bit}: the next block was not found"));
        let after = ((block + 1) * per_block).min(events.len());
        assert_eq!(
            (gap.offset_from, gap.offset_to),
            (offsets[block] as u64, offsets[block + 1] as u64)
        );
        assert_eq!(
            (gap.event_from, gap.event_to),
            (before as u64, after as u64)
        );
        for (index, event) in rendered.iter().enumerate().skip(after) {
            assert_eq!(reader.position(), index as u64);
            let read = reader
                .next()
                .expect("sound again")
                .map(|event| render(&event));
            assert_eq!(read.as_ref(), Some(event));
        }
        assert!(reader.next().expect("sound again").is_none());
    }
}

#[test]
fn a_missing_block_is_noticed() {
    let events = every_kind();
    let file = write(&events, &blocks_of(10), true);
    let offsets = block_offsets(&file);
    let mut spliced = file[..offsets[1]].to_vec();
    spliced.extend_from_slice(&file[offsets[2]..]);
    let (read, error) = read(&spliced);
    assert_eq!(read.len(), 10);
    let error = error.expect("a block is missing").to_string();
    assert_eq!(
        error,
        format!(
            "the trace is corrupt at byte {} (block 1, event 10): a block before it is missing",
            offsets[1]
        )
    );
}

#[test]
fn bytes_behind_the_end_are_noticed() {
    let mut file = write(&every_kind(), &WriterOptions::default(), true);
    file.push(0);
    let (read, error) = read(&file);
    assert_eq!(read.len(), every_kind().len());
    assert!(matches!(error, Some(Error::Corrupt { .. })), "{error:?}");
}

#[test]
fn what_is_not_a_trace_is_named_so() {
    for (bytes, sentence) in [
        (&b""[..], "this is not a Brownout trace: the file is empty"),
        (
            b"\x7fELF",
            "this is not a Brownout trace: the file ends inside the header",
        ),
        (
            &[0; 100],
            "this is not a Brownout trace: it begins differently",
        ),
        (
            b"\x89BRNOUT\n\x07\0\0\0\0\0\0\0",
            "this trace has format version 7, and this program reads version 1",
        ),
        (
            b"\x89BRNOUT\n\x01\0\0\0\xff\xff\xff\xff",
            "this is not a Brownout trace: its header is longer than the format allows",
        ),
    ] {
        let error = Reader::new(Cursor::new(bytes)).err().expect("not a trace");
        assert_eq!(error.to_string(), sentence);
    }
}

/// A disk of limited size; like a real one it takes what fits of a write.
struct Disk {
    content: Vec<u8>,
    size: usize,
}

impl Write for &mut Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(self.size - self.content.len());
        if fits == 0 && !bytes.is_empty() {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.content.extend_from_slice(&bytes[..fits]);
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_and_leaves_a_readable_trace() {
    let events = every_kind();
    let rendered: Vec<_> = events.iter().map(render).collect();
    let whole = write(&events, &blocks_of(5), true);
    for size in (block_offsets(&whole)[0]..whole.len()).step_by(7) {
        let mut disk = Disk {
            content: Vec::new(),
            size,
        };
        let mut writer = Writer::with_options(&mut disk, &support::meta(), &blocks_of(5))
            .expect("the header fits");
        let pushed = events.iter().try_for_each(|event| writer.push(event));
        let first = match pushed {
            Err(error) => {
                let again = writer.flush().expect_err("the disk is still full");
                assert_eq!(again.kind(), error.kind());
                let last = writer.finish().expect_err("the disk is still full");
                assert_eq!(last.kind(), error.kind());
                error
            }
            Ok(()) => writer.finish().expect_err("the footer does not fit"),
        };
        assert_eq!(first.kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.content.len(), size);
        let (read, error) = read(&disk.content);
        assert_eq!(read, rendered[..read.len()]);
        assert!(read.len() % 5 == 0 || read.len() == events.len());
        assert!(matches!(error, Some(Error::Truncated(_))), "{error:?}");
    }
}

#[test]
fn a_dropped_writer_keeps_its_events_but_not_the_footer() {
    let events = every_kind();
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, &Meta::default()).expect("memory");
    for event in &events {
        writer.push(event).expect("memory");
    }
    drop(writer);
    let (read, error) = read(&file);
    assert_eq!(read.len(), events.len());
    assert!(matches!(error, Some(Error::Truncated(_))), "{error:?}");
}

/// A reader over mutated bytes must end, in order or in an error; whatever it yields, it yields
/// through all its doors.
fn exercise(file: &[u8]) -> u64 {
    let Ok(mut reader) = Reader::new(Cursor::new(file)) else {
        return 0;
    };
    let mut seen = 0;
    loop {
        match reader.next() {
            Ok(Some(_)) => seen += 1,
            Ok(None) => break,
            Err(error) => {
                assert!(!error.to_string().contains('\n'));
                match reader.resync() {
                    Ok(Some(gap)) => assert!(gap.offset_to > gap.offset_from),
                    Ok(None) | Err(_) => break,
                }
            }
        }
    }
    let _ = reader.seek_to_event(seen / 2);
    let _ = reader.next();
    seen
}

fn mutate(file: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.index(4) {
        if file.is_empty() {
            return;
        }
        let at = random.index(file.len());
        match random.index(6) {
            0 => file[at] ^= 1 << random.index(8),
            1 => file[at] = random.bits() as u8,
            2 => file.truncate(at),
            3 => {
                let end = (at + 1 + random.index(64)).min(file.len());
                file.drain(at..end);
            }
            4 => {
                let end = (at + 1 + random.index(64)).min(file.len());
                let piece = file[at..end].to_vec();
                let to = random.index(file.len());
                file.splice(to..to, piece);
            }
            _ => {
                let end = (at + 8).min(file.len());
                let value = [0u64, u64::MAX, 1 << 31, 1 << 40][random.index(4)];
                file[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            }
        }
    }
}

#[test]
fn mutated_files_never_panic() {
    let events = every_kind();
    let seeds: Vec<Vec<u8>> = [1, 3, 10, 100]
        .into_iter()
        .flat_map(|per_block| {
            [true, false].map(|finish| write(&events, &blocks_of(per_block), finish))
        })
        .collect();
    let mut total = 0;
    for seed in 0..5000 {
        let mut random = Random::new(seed);
        let mut file = seeds[random.index(seeds.len())].clone();
        mutate(&mut file, &mut random);
        total += exercise(&file);
    }
    assert!(
        total > 50_000,
        "the mutations leave too little to read: {total} events"
    );
}

/// Behind the checksums: payloads that a checksum would have rejected reach the decoder.
#[test]
fn mutated_payloads_never_panic() {
    let events: Vec<Event<'_>> = every_kind().into_iter().cycle().take(200).collect();
    let payload = payload_of(&events);
    let count = events.len() as u32;
    assert_eq!(
        brownout_trace::decode_payload_for_fuzzing(&payload, count),
        count
    );
    let mut outcomes = [0u32; 2];
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let mut mutated = payload.clone();
        mutate(&mut mutated, &mut random);
        let decoded = brownout_trace::decode_payload_for_fuzzing(&mutated, count);
        outcomes[usize::from(decoded == count)] += 1;
    }
    assert!(
        outcomes.iter().all(|&seen| seen > 100),
        "one-sided: {outcomes:?}"
    );
}

const VICTIM: &str = "BROWNOUT_TRACE_TEST_VICTIM";

/// Not a test of its own: the recorder that the next test kills.
#[test]
fn records_until_killed_if_told_to() {
    let Some(path) = std::env::var_os(VICTIM) else {
        return;
    };
    let mut writer = Writer::create(path.as_ref(), &Meta::default()).expect("a scratch file");
    let events = every_kind();
    loop {
        for event in &events {
            writer.push(event).expect("room on the disk");
        }
    }
}

#[test]
fn a_killed_recorder_leaves_whole_blocks() {
    let dir = tempfile::tempdir().expect("a scratch folder");
    let path = dir.path().join("trace");
    let mut victim = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "records_until_killed_if_told_to"])
        .env(VICTIM, &path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("this program runs");
    while std::fs::metadata(&path).map_or(0, |metadata| metadata.len()) < 200_000 {
        assert!(
            victim.try_wait().expect("a child").is_none(),
            "it ended by itself"
        );
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    victim.kill().expect("it runs");
    victim.wait().expect("a child");

    let events = every_kind();
    let mut reader = Reader::open(&path).expect("a trace");
    assert!(!reader.is_complete());
    let mut seen = 0usize;
    let error = loop {
        match reader.next() {
            Ok(Some(event)) => assert_eq!(event, events[seen % events.len()]),
            Ok(None) => panic!("a killed recording cannot be complete"),
            Err(error) => break error,
        }
        seen += 1;
    };
    assert!(seen >= 1 << 16, "only {seen} events");
    assert!(matches!(error, Error::Truncated(_)), "{error}");
}
