//! The table against the kernel's own list of numbers on this machine.

use brownout_syscalls::{ArgKind, all, info, name};
use std::collections::BTreeMap;

/// Newer than some installed headers, or (`uretprobe`, `uprobe`) not in them on purpose.
const NEWER: &[(u32, &str)] = &[
    (335, "uretprobe"),
    (336, "uprobe"),
    (451, "cachestat"),
    (452, "fchmodat2"),
    (453, "map_shadow_stack"),
    (454, "futex_wake"),
    (455, "futex_wait"),
    (456, "futex_requeue"),
    (457, "statmount"),
    (458, "listmount"),
    (459, "lsm_get_self_attr"),
    (460, "lsm_set_self_attr"),
    (461, "lsm_list_modules"),
    (462, "mseal"),
    (463, "setxattrat"),
    (464, "getxattrat"),
    (465, "listxattrat"),
    (466, "removexattrat"),
    (467, "open_tree_attr"),
    (468, "file_getattr"),
    (469, "file_setattr"),
    (470, "listns"),
];

fn header() -> BTreeMap<u32, String> {
    let path = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";
    let text = std::fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{path} (package linux-libc-dev): {error}"));
    text.lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("#define __NR_")?.split_whitespace();
            Some((words.next()?, words.next()?))
        })
        .map(|(name, nr)| (nr.parse().expect("a number"), name.to_owned()))
        .collect()
}

#[test]
fn every_call_of_the_header_has_its_row() {
    let header = header();
    assert!(header.len() > 300, "the header was not understood");
    // A number that is too new for the table is no defect of it: the engine treats it as unknown.
    let newest = all().map(|row| row.nr).max().expect("rows");
    for (nr, expected) in header.range(..=newest) {
        assert_eq!(name((*nr).into()), expected, "number {nr}");
    }
}

#[test]
fn every_row_is_a_call() {
    let header = header();
    for row in all() {
        let known = header.get(&row.nr).is_some_and(|name| name == row.name)
            || NEWER.contains(&(row.nr, row.name));
        assert!(
            known,
            "row {} {} is not a call of this kernel",
            row.nr, row.name
        );
    }
}

#[test]
fn numbers_outside_have_no_row() {
    for nr in [337, 423, 479, 480, 512, 1 << 32, 1 << 32 | 1, u64::MAX] {
        assert!(info(nr).is_none(), "{nr}");
        assert_eq!(name(nr), "?");
    }
}

#[test]
fn flags_agree_with_arguments() {
    for row in all() {
        let kinds = row.kinds(&[0; 6]);
        for (n, kind) in kinds.iter().enumerate() {
            let pointer = !matches!(kind, ArgKind::Value | ArgKind::Address);
            assert!(
                !pointer || row.pointers & 1 << n != 0,
                "{} argument {n}",
                row.name
            );
            assert!(
                !matches!(kind, ArgKind::Nested(_)) || row.nested,
                "{}",
                row.name
            );
        }
    }
}
