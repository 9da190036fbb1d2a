//! Damaged and hostile logs: an error or events, never a panic, and nothing made up.

mod support;

use brownout_storelog::{Error, Importer};
use brownout_trace::event::{ContextId, EventKind, TargetAddr};
use brownout_trace::maps::AddressSpaces;
use proptest::prelude::*;
use support::import;

const LOG: &[u8] = b"==12== Command: ./a\n\
    START|REGISTER_FILE;/pm/a;0x10000;0x1000;0x0|a.BEGIN|STORE;0x10000;0x102;0x8;0x40: f (a.c:1);0x60: main (a.c:2)\
    |FLUSH;0x10000;0x80|FENCE|a.END|STORE;0x90000;0x1;0x1==12== a message\n\
    |STORE;0x10010;0x1;0x4;0x40: f (a.c:1);0x60: main (a.c:2)|STOP\n\
    ==12== ERROR SUMMARY: 0 errors\n";

/// Flushes may be long; what is looked at need not be.
const EVENTS_MAX: usize = 20_000;

/// Reads whatever it is. What comes out must be sound: defined before it is used, and an error
/// stays.
fn read_any(log: &[u8]) {
    let mut importer = Importer::new(log);
    let mut spaces = AddressSpaces::new();
    let mut contexts = 0;
    for _ in 0..EVENTS_MAX {
        let event = match importer.next() {
            Ok(Some(event)) => event,
            Ok(None) => {
                assert!(importer.next().is_ok_and(|event| event.is_none()));
                return;
            }
            Err(error) => {
                let again = importer.next().expect_err("the error stays");
                assert_eq!(again.to_string(), error.to_string());
                return;
            }
        };
        spaces.observe(&event).expect("threads are known");
        match event.kind {
            EventKind::Context { context, .. } => {
                contexts += 1;
                assert_eq!(context, ContextId(contexts));
            }
            EventKind::Store(access) => {
                assert!(event.context <= ContextId(contexts));
                assert_eq!(access.bytes.len(), access.size as usize);
                for into in [0, u64::from(access.size) - 1] {
                    let addr = TargetAddr(access.addr.0 + into);
                    let mapped = spaces.translate(event.thread, addr);
                    assert!(mapped.is_some(), "{addr} is not mapped");
                }
            }
            _ => {}
        }
    }
}

#[test]
fn cut_off_at_every_byte() {
    let (whole, result) = import(LOG);
    result.expect("the log is sound");
    let find = |word: &[u8]| {
        let at = LOG.windows(word.len()).position(|window| window == word);
        at.expect("it is there") + word.len()
    };
    let (start, stop) = (find(b"START"), find(b"|STOP"));
    for len in 0..LOG.len() {
        let (events, result) = import(&LOG[..len]);
        assert_eq!(events, whole[..events.len()], "cut at {len}");
        match result {
            Err(Error::NotAStoreLog { .. }) => assert!(len < start, "cut at {len}"),
            Err(Error::Truncated {
                offset,
                events: count,
            }) => {
                assert!((start..stop).contains(&len), "cut at {len}");
                assert!(
                    offset <= len as u64 && len as u64 - offset < 80,
                    "cut at {len}"
                );
                assert_eq!(count, events.len() as u64);
            }
            Ok(()) => {
                assert!(len >= stop, "cut at {len}");
                assert_eq!(events.len(), whole.len());
            }
            Err(error) => panic!("cut at {len}: {error}"),
        }
    }
}

#[test]
fn one_byte_at_a_time_reads_the_same() {
    struct Single<'a>(&'a [u8]);
    impl std::io::Read for Single<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let len = self.0.len().min(into.len()).min(1);
            into[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }
    let mut importer = Importer::new(Single(LOG));
    let mut events = Vec::new();
    while let Some(event) = importer.next().expect("sound") {
        events.push(support::line(&event));
    }
    assert_eq!(events, import(LOG).0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn changed_bytes(changes in prop::collection::vec((0..LOG.len(), any::<u8>()), 1..6)) {
        let mut log = LOG.to_vec();
        for (at, byte) in changes {
            log[at] = byte;
        }
        read_any(&log);
    }

    /// Elements in any order, with any fields.
    #[test]
    fn shuffled_elements(
        elements in prop::collection::vec(
            prop_oneof![
                "(STORE|FLUSH|FENCE|REGISTER_FILE|START|STOP|x)(;(0x)?[0-9a-f]{0,17}){0,5}",
                "==[0-9]{0,11}==[ a-z]{0,3}",
                "[;=*0x-]{0,5}",
            ],
            0..12,
        ),
        separator in "[|\n]",
    ) {
        let log = format!("START|{}", elements.join(&separator));
        read_any(log.as_bytes());
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut log = b"START|".to_vec();
        log.extend(&bytes);
        read_any(&log);
        read_any(&bytes);
    }
}
