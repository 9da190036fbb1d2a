//! Every row of every entry in real libraries, against gimli's own execution.

use std::path::Path;
use std::time::{Duration, Instant};

use brownout_unwind::{FrameRule, LookupPc, PcKind, Tables, encode_index, index_bytes, rule_for};
use gimli::{CfaRule, CieOrFde, EhFrame, EhFrameHdr, LittleEndian, UnwindSection};

use crate::oracle::{self, Caller, Context, Oracle};
use crate::process::{Image, c_library, images, load};

#[derive(Default)]
struct Tally {
    entries: u64,
    addresses: u64,
    unknown: u64,
    rbp_lost: u64,
    signal: u64,
    end: u64,
    deref: u64,
    other: u64,
    expression_rows: u64,
    linkage_entries: u64,
    spent: Duration,
}

/// Compares all rows of an image; panics at the first difference.
fn compare(image: &Image) -> Tally {
    let mut tally = Tally::default();
    let hdr_addr = image.eh_frame_hdr.as_ptr() as u64;
    let hdr_bases = gimli::BaseAddresses::default().set_eh_frame_hdr(hdr_addr);
    let hdr = EhFrameHdr::new(image.eh_frame_hdr, LittleEndian)
        .parse(&hdr_bases, 8)
        .unwrap();
    let eh_frame_addr = hdr.eh_frame_ptr().direct().unwrap();
    let skip = eh_frame_addr - image.after_hdr.as_ptr() as u64;
    let section = oracle::section(&image.after_hdr[skip as usize..]);
    let bases = oracle::bases(eh_frame_addr);
    let mut context = Context::new_in();
    let mut entries = section.entries(&bases);
    while let Some(entry) = entries.next().unwrap() {
        let CieOrFde::Fde(fde) = entry else { continue };
        let fde = fde.parse(EhFrame::cie_from_offset).unwrap();
        tally.entries += 1;
        let oracle = Oracle {
            section: &section,
            fde: &fde,
        };
        let mut rows = fde.rows(&section, &bases, &mut context).unwrap();
        while let Some(row) = rows.next_row().unwrap() {
            let is_expression = matches!(row.cfa(), CfaRule::Expression(_));
            tally.expression_rows += u64::from(is_expression);
            let (start, end) = (row.start_address(), row.end_address());
            // Rules with expressions may differ at each address (linkage tables), others may not.
            let addresses: Vec<u64> = match end.saturating_sub(start) {
                0 => vec![],
                length if is_expression => (start..start + length.min(64)).collect(),
                _ => vec![start, end - 1],
            };
            for pc in addresses {
                tally.addresses += 1;
                let expected = oracle.caller(row, pc);
                let begin = Instant::now();
                let rule = rule_for(&image.module, LookupPc::new(pc, PcKind::Exact));
                tally.spent += begin.elapsed();
                let place = || format!("{} {pc:#x} {rule:?} {row:?}", image.path);
                match rule {
                    FrameRule::SignalFrame => tally.signal += 1,
                    FrameRule::End => tally.end += 1,
                    FrameRule::RbpDeref { .. } | FrameRule::RspDeref { .. } => tally.deref += 1,
                    FrameRule::Other { .. } => tally.other += 1,
                    FrameRule::Rsp { .. } if is_expression => tally.linkage_entries += 1,
                    _ => {}
                }
                match oracle::ours(rule, pc) {
                    None => {
                        tally.unknown += 1;
                        // Only what the crate's documentation excuses.
                        let Caller::Frame {
                            rsp,
                            slot: Some(slot),
                            ..
                        } = expected
                        else {
                            continue;
                        };
                        assert!(is_expression || slot != rsp - 8, "{}", place());
                    }
                    Some(Caller::Frame {
                        rsp,
                        rbp: None,
                        slot,
                    }) => {
                        tally.rbp_lost += 1;
                        let Caller::Frame {
                            rsp: rsp_expected,
                            slot: slot_expected,
                            ..
                        } = expected
                        else {
                            panic!("{} {expected:?}", place())
                        };
                        assert_eq!((rsp, slot), (rsp_expected, slot_expected), "{}", place());
                    }
                    Some(actual) => assert_eq!(actual, expected, "{}", place()),
                }
            }
        }
    }
    tally
}

#[test]
fn every_row_agrees() {
    // Not all machines have it; where it is, it is compared.
    for name in ["libpmemobj.so.1", "libcrypto.so.3", "libstdc++.so.6"] {
        let _ = load(Path::new(name));
    }
    c_library();
    let mut seen = Vec::new();
    for image in images() {
        let tally = compare(&image);
        let file = Path::new(&image.path)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        println!(
            "{file:24} entries {:6} addresses {:7} unknown {:3} ({:.4} %) rbp lost {} signal {} end {} \
             deref {} other register {} linkage {} | {} ns each",
            tally.entries,
            tally.addresses,
            tally.unknown,
            100.0 * tally.unknown as f64 / tally.addresses.max(1) as f64,
            tally.rbp_lost,
            tally.signal,
            tally.end,
            tally.deref,
            tally.other,
            tally.linkage_entries,
            tally.spent.as_nanos() / u128::from(tally.addresses.max(1)),
        );
        assert!(tally.entries > 0, "{file}");
        // Two in a thousand (libcrypto's big-number code finds its frame by a multiplication), and
        // in tiny libraries one or two functions.
        assert!(
            tally.unknown <= 8 + tally.addresses / 500,
            "{file}: {} unknown",
            tally.unknown
        );
        if file.starts_with("libc.so") {
            assert!(tally.signal > 0, "libc has the signal trampoline");
            assert!(tally.end > 0, "libc has the start of threads");
            assert!(tally.linkage_entries > 0, "libc has a linkage table");
        }
        if file.starts_with("frames-") {
            assert!(tally.deref > 20, "realigned functions");
            assert!(tally.other > 0, "a frame on rax");
            assert!(tally.linkage_entries >= 4 * 16, "a linkage table");
        }
        seen.push(file.into_owned());
    }
    for needed in ["libc.so", "ld-linux", "frames-"] {
        assert!(
            seen.iter().any(|name| name.starts_with(needed)),
            "{needed} in {seen:?}"
        );
    }
    // The executable has the empty name.
    assert!(seen.iter().any(String::is_empty), "{seen:?}");
}

/// The 16 bytes of a lazily bound linkage entry: `jmp *got`, `push n` (at 6), `jmp first` (at 11).
#[test]
fn linkage_entries_resolve_to_the_right_depth() {
    let image = c_library().image();
    let start = image.module.start() & !15;
    // The entries are somewhere at the start of the code: `jmp *[rip+n]; push imm32; jmp rel32`.
    let mut found = 0;
    for entry in (start..start + 4096)
        .step_by(16)
        .filter(|&entry| entry + 16 < image.module.end())
    {
        // SAFETY: inside of the library's executable segment, which is readable and never unloaded.
        let code = unsafe { *(entry as *const [u8; 16]) };
        if !(code[..2] == [0xff, 0x25] && code[6] == 0x68 && code[11] == 0xe9) {
            continue;
        }
        found += 1;
        for offset in 0..16 {
            let pc = LookupPc::new(entry + offset, PcKind::Exact);
            let FrameRule::Rsp { cfa_offset, .. } = rule_for(&image.module, pc) else {
                panic!("entry + {offset}: {:?}", rule_for(&image.module, pc));
            };
            assert_eq!(
                cfa_offset,
                if offset >= 11 { 16 } else { 8 },
                "entry + {offset}"
            );
        }
    }
    assert!(found >= 5, "{found} entries");
}

/// Where the linker has written no index (`gcc -static`), the tables are found by their content,
/// and an index made of them answers as the linker's does.
#[test]
fn an_index_of_our_own_answers_like_the_linkers() {
    let mut compared = 0;
    for image in images() {
        let hdr_addr = image.eh_frame_hdr.as_ptr() as u64;
        let Some(eh_frame) = Tables::eh_frame_addr_of(image.eh_frame_hdr, hdr_addr) else {
            continue;
        };
        let skip = (eh_frame - image.after_hdr.as_ptr() as u64) as usize;
        let found = Tables::find_in(image.after_hdr).expect("the section is there");
        assert_eq!(found, skip, "{}", image.path);

        let bare = Tables::new(&[], 0, &image.after_hdr[found..], eh_frame);
        assert!(!bare.is_indexed());
        let mut functions = Vec::new();
        bare.each_entry(|start, end, entry| {
            if image.module.start() <= start && start < end && end <= image.module.end() {
                functions.push((start, entry));
            }
        });
        functions.sort_unstable();
        let mut index = vec![0; index_bytes(functions.len())];
        encode_index(&functions, &mut index).expect("the size is right");
        let ours = Tables::new(
            &index,
            index.as_ptr() as u64,
            &image.after_hdr[found..],
            eh_frame,
        );
        assert!(ours.is_indexed());
        for (start, _) in &functions {
            for pc in [*start, start + 1, start + 7] {
                let pc = LookupPc::new(pc, PcKind::Exact);
                assert_eq!(
                    ours.rule_for(pc),
                    rule_for(&image.module, pc),
                    "{}",
                    image.path
                );
            }
        }
        compared += functions.len();
    }
    assert!(
        compared > 1000,
        "{compared} functions are too few to mean anything"
    );
}
