//! Damaged and invented tables: never a panic, and invented ones agree with gimli where both
//! understand them.

use std::sync::OnceLock;

use brownout_unwind::{FrameRule, LookupPc, PcKind, Tables};
use gimli::{CfaRule, EhFrame, EhFrameOffset, RegisterRule, UnwindSection, X86_64};
use proptest::prelude::*;

use crate::oracle::{self, Caller, Context, Oracle};
use crate::process::c_library;

/// The tables of the small C library: so small that damage is likely to be seen.
struct Fixture {
    hdr: Vec<u8>,
    hdr_addr: u64,
    eh_frame: Vec<u8>,
    eh_frame_addr: u64,
    code: std::ops::Range<u64>,
}

fn fixture() -> &'static Fixture {
    static FIXTURE: OnceLock<Fixture> = OnceLock::new();
    FIXTURE.get_or_init(|| {
        let image = c_library().image();
        let hdr_addr = image.eh_frame_hdr.as_ptr() as u64;
        let eh_frame_addr = Tables::eh_frame_addr_of(image.eh_frame_hdr, hdr_addr).unwrap();
        let skip = eh_frame_addr - image.after_hdr.as_ptr() as u64;
        Fixture {
            hdr: image.eh_frame_hdr.to_vec(),
            hdr_addr,
            eh_frame: image.after_hdr[skip as usize..].to_vec(),
            eh_frame_addr,
            code: image.module.start()..image.module.end(),
        }
    })
}

/// The rules of all addresses; how many are known.
fn sweep(fixture: &Fixture, hdr: &[u8], eh_frame: &[u8]) -> usize {
    let tables = Tables::new(hdr, fixture.hdr_addr, eh_frame, fixture.eh_frame_addr);
    fixture
        .code
        .clone()
        .step_by(3)
        .filter(|&pc| tables.rule_for(LookupPc::new(pc, PcKind::Exact)) != FrameRule::Unknown)
        .count()
}

#[test]
fn the_undamaged_fixture_has_rules() {
    let fixture = fixture();
    assert!(sweep(fixture, &fixture.hdr, &fixture.eh_frame) > 100);
}

/// Without its sorted table, the entries are searched one by one, with the same outcome.
#[test]
fn a_missing_index_changes_nothing() {
    let fixture = fixture();
    let mut hdr = fixture.hdr.clone();
    // Both encodings "omitted".
    hdr[2] = 0xff;
    hdr[3] = 0xff;
    let tables = |hdr| {
        Tables::new(
            hdr,
            fixture.hdr_addr,
            &fixture.eh_frame,
            fixture.eh_frame_addr,
        )
    };
    for pc in fixture.code.clone() {
        let pc = LookupPc::new(pc, PcKind::Exact);
        assert_eq!(
            tables(&hdr[..]).rule_for(pc),
            tables(&fixture.hdr[..]).rule_for(pc)
        );
    }
}

/// Bytes to overwrite: (place as a fraction of the length, new value).
fn damage(max: usize) -> impl Strategy<Value = Vec<(f64, u8)>> {
    let value = prop_oneof![any::<u8>(), Just(0xff), Just(0x7f), Just(0x80), Just(0)];
    prop::collection::vec((0.0..1.0, value), 0..max)
}

fn apply(bytes: &mut [u8], damage: &[(f64, u8)]) {
    for &(place, value) in damage {
        let index = (place * bytes.len() as f64) as usize;
        bytes[index] = value;
    }
}

const FRAME_START: u64 = 0x10_0000;
const CODE_START: u64 = 0x40_0000;
const CODE_BYTES: u64 = 64;

/// One common entry and one entry for `CODE_START`, with these instructions.
fn invented(common: &[u8], own: &[u8]) -> (Vec<u8>, usize) {
    let mut bytes = vec![0; 8];
    bytes.push(1);
    // No augmentation, code alignment 1, data alignment -8, return address in column 16, and the
    // conventional first row: CFA = rsp + 8, return address at CFA - 8.
    bytes.extend_from_slice(&[0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1]);
    bytes.extend_from_slice(common);
    let length = bytes.len() as u32 - 4;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let fde = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(fde as u32 + 4).to_le_bytes());
    bytes.extend_from_slice(&CODE_START.to_le_bytes());
    bytes.extend_from_slice(&CODE_BYTES.to_le_bytes());
    bytes.extend_from_slice(own);
    let length = (bytes.len() - fde) as u32 - 4;
    bytes[fde..fde + 4].copy_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    (bytes, fde)
}

/// An instruction, mostly about the columns that matter.
fn instruction() -> impl Strategy<Value = Vec<u8>> {
    // Rules for the return address (16) are rare: after most of them nothing is left to compare.
    let register =
        || prop_oneof![8 => Just(6_u8), 8 => Just(7), 1 => Just(16), 2 => Just(3), 2 => Just(10)];
    let small = || 0_u8..0x40;
    let expression = prop_oneof![
        (prop_oneof![Just(0x76_u8), Just(0x77), Just(0x73)], small())
            .prop_map(|(base, offset)| vec![base, offset, 0x06]),
        (prop_oneof![Just(0x76_u8), Just(0x77)], small(), small())
            .prop_map(|(base, offset, add)| vec![base, offset, 0x06, 0x23, add]),
        (prop_oneof![Just(0x76_u8), Just(0x77)], small()).prop_map(|(b, offset)| vec![b, offset]),
        (0x30_u8..0x50, 0x29_u8..0x2f).prop_map(|(n, comparison)| vec![
            0x77, 8, 0x80, 0, 0x3f, 0x1a, n, comparison, 0x33, 0x24, 0x22
        ]),
        prop::collection::vec(any::<u8>(), 0..6),
    ]
    .boxed();
    let with_length = |expression: Vec<u8>| {
        let mut bytes = vec![expression.len() as u8];
        bytes.extend(expression);
        bytes
    };
    prop_oneof![
        4 => (1_u8..16).prop_map(|delta| vec![0x40 | delta]),
        2 => (register(), small()).prop_map(|(r, offset)| vec![0x0c, r, offset]),
        2 => register().prop_map(|r| vec![0x0d, r]),
        3 => small().prop_map(|offset| vec![0x0e, offset]),
        3 => (register(), small()).prop_map(|(r, offset)| vec![0x80 | r, offset]),
        2 => register().prop_map(|r| vec![0xc0 | r]),
        1 => register().prop_map(|r| vec![0x07, r]),
        1 => register().prop_map(|r| vec![0x08, r]),
        1 => (register(), register()).prop_map(|(a, b)| vec![0x09, a, b]),
        3 => Just(vec![0x0a]),
        1 => Just(vec![0x0b]),
        1 => (register(), small()).prop_map(|(r, offset)| vec![0x11, r, offset]),
        1 => (register(), small()).prop_map(|(r, offset)| vec![0x12, r, offset]),
        1 => small().prop_map(|offset| vec![0x13, offset]),
        1 => (register(), small()).prop_map(|(r, offset)| vec![0x14, r, offset]),
        1 => small().prop_map(|size| vec![0x2e, size]),
        1 => expression.clone().prop_map(move |e| [vec![0x0f], with_length(e)].concat()),
        1 => (register(), expression.clone())
            .prop_map(move |(r, e)| [vec![0x10, r], with_length(e)].concat()),
        1 => (register(), expression).prop_map(move |(r, e)| [vec![0x16, r], with_length(e)].concat()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_tables_never_panic(
        hdr_damage in damage(4),
        frame_damage in damage(40),
        hdr_keep in 0.0..4.0_f64,
        frame_keep in 0.0..4.0_f64,
    ) {
        let fixture = fixture();
        let (mut hdr, mut eh_frame) = (fixture.hdr.clone(), fixture.eh_frame.clone());
        apply(&mut hdr, &hdr_damage);
        apply(&mut eh_frame, &frame_damage);
        hdr.truncate((hdr_keep * hdr.len() as f64) as usize);
        eh_frame.truncate((frame_keep * eh_frame.len() as f64) as usize);
        sweep(fixture, &hdr, &eh_frame);
        Tables::eh_frame_addr_of(&hdr, fixture.hdr_addr);
    }

    #[test]
    fn noise_never_panics(
        hdr in prop::collection::vec(any::<u8>(), 0..200),
        eh_frame in prop::collection::vec(any::<u8>(), 0..200),
        (hdr_addr, eh_frame_addr, pc) in any::<(u64, u64, u64)>(),
    ) {
        for start in [&[][..], &[1, 0x1b, 0x03, 0x3b], &[1, 0x1b, 0x04, 0x3c]] {
            let hdr = [start, &hdr].concat();
            let tables = Tables::new(&hdr, hdr_addr, &eh_frame, eh_frame_addr);
            tables.rule_for(LookupPc::new(pc, PcKind::ReturnAddress));
            Tables::eh_frame_addr_of(&hdr, hdr_addr);
        }
    }

    #[test]
    fn invented_rows_agree_with_gimli(
        common in prop::collection::vec(instruction(), 0..3),
        own in prop::collection::vec(instruction(), 0..24),
        offset in 0..CODE_BYTES,
    ) {
        let (bytes, fde_offset) = invented(&common.concat(), &own.concat());
        let pc = CODE_START + offset;
        let section = oracle::section(&bytes);
        let bases = oracle::bases(FRAME_START);
        let fde = section
            .fde_from_offset(&bases, EhFrameOffset(fde_offset), EhFrame::cie_from_offset)
            .unwrap();
        prop_assert!(fde.contains(pc));
        let rule = Tables::new(&[], 0, &bytes, FRAME_START)
            .rule_for(LookupPc::new(pc, PcKind::Exact));
        let mut context = Context::new_in();
        let Ok(row) = fde.unwind_info_for_address(&section, &bases, &mut context, pc) else {
            return Ok(());
        };
        let expected = Oracle { section: &section, fde: &fde }.caller(row, pc);
        match oracle::ours(rule, pc) {
            None => {
                // Only what the crate's documentation excuses.
                let is_plain = matches!(
                    row.cfa(),
                    CfaRule::RegisterAndOffset { register: gimli::Register(..16), offset: 8.. }
                ) && row.register(X86_64::RA) == Some(RegisterRule::Offset(-8));
                prop_assert!(!is_plain, "{:?} {:?}", rule, row);
            }
            // gimli computes an `rbp` that this crate does not, never the other way round.
            Some(Caller::Frame { rsp, rbp: None, slot }) => {
                let Caller::Frame { rsp: rsp_expected, slot: slot_expected, .. } = expected else {
                    panic!("{rule:?} {expected:?}");
                };
                prop_assert_eq!((rsp, slot), (rsp_expected, slot_expected));
            }
            Some(actual) => prop_assert_eq!(actual, expected, "{:?}", rule),
        }
    }
}
