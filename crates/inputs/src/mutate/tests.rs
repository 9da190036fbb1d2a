use super::{Change, Limits, Mutator};
use crate::Below;
use crate::sequence::Sequence;
use crate::templates::tests::any_templates;
use crate::weights::Weights;
use brownout_random::Random;
use std::collections::BTreeSet;

const MAPCLI: &str = "i {key}\nr {key}\nc {key}\np\nn {int:1-50}";

fn mutator(text: &str) -> Mutator {
    Mutator::new(
        text.parse()
            .unwrap_or_else(|error| panic!("{error}\n{text}")),
    )
}

/// Everything that this change makes of this input, over many seeds.
fn outcomes(
    mutator: &Mutator,
    change: Change,
    input: &str,
    other: Option<&str>,
) -> BTreeSet<String> {
    let outcome = |seed| {
        let mut random = Random::new(seed);
        let below: &mut dyn Below = &mut |n: usize| random.index(n);
        let changed = mutator.apply(change, input.as_bytes(), other.map(str::as_bytes), below)?;
        Some(String::from_utf8(changed).expect("text"))
    };
    (0..400).filter_map(outcome).collect()
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[test]
fn operations_are_added_deleted_and_repeated() {
    let mapcli = mutator(MAPCLI);
    let added = outcomes(&mapcli, Change::Add, "i 5\n", None);
    assert!(added.contains("i 5\nr 5\n"), "{added:?}");
    assert!(
        added.contains("i 5\np\n") && added.contains("p\ni 5\n"),
        "{added:?}"
    );
    assert!(added.iter().all(|text| lines(text).len() == 2));

    let deleted = outcomes(&mapcli, Change::Delete, "i 1\ni 2\ni 3\n", None);
    let expected = ["i 1\ni 2\n", "i 1\ni 3\n", "i 2\ni 3\n"];
    assert!(deleted.iter().eq(expected.iter()), "{deleted:?}");
    assert!(
        outcomes(&mapcli, Change::Delete, "i 1\n", None).is_empty(),
        "nothing would be left"
    );

    let ranges = outcomes(&mapcli, Change::DeleteRange, "i 1\ni 2\ni 3\ni 4\n", None);
    assert!(
        ranges.contains("i 1\n") && ranges.contains("i 1\ni 4\n"),
        "{ranges:?}"
    );

    let duplicated = outcomes(&mapcli, Change::Duplicate, "i 1\np\n", None);
    assert!(duplicated.contains("i 1\ni 1\np\n") && duplicated.contains("i 1\np\ni 1\n"));

    let repeated = outcomes(&mapcli, Change::Repeat, "i 1\nr 1\n", None);
    assert!(repeated.contains("i 1\nr 1\ni 1\nr 1\n"), "{repeated:?}");
    assert!(repeated.iter().any(|text| lines(text).len() > 8));

    let replayed = outcomes(&mapcli, Change::Replay, "i 1\nr 1\np\n", None);
    assert!(replayed.contains("i 1\nr 1\np\ni 1\nr 1\n"), "{replayed:?}");
}

#[test]
fn parameters_change_as_their_names_say() {
    let mapcli = mutator(MAPCLI);
    let met = outcomes(&mapcli, Change::Meet, "i 5\nr 8\n", None);
    assert!(
        met.iter().eq(["i 5\nr 5\n", "i 8\nr 8\n"].iter()),
        "{met:?}"
    );
    let stepped = outcomes(&mapcli, Change::Step, "i 5\n", None);
    assert!(
        stepped.contains("i 4\n") && stepped.contains("i 6\n"),
        "{stepped:?}"
    );
    assert!(outcomes(&mapcli, Change::Step, "p\n", None).is_empty());
    let boundaries = outcomes(&mapcli, Change::Boundary, "i 5\n", None);
    assert!(boundaries.contains("i 4294967295\n") && boundaries.contains("i -1\n"));
    let big = outcomes(&mapcli, Change::Big, "i 5\n", None);
    assert!(big.iter().all(|text| text.len() > 5), "{big:?}");
    let exchanged = outcomes(&mapcli, Change::Exchange, "i 5\n", None);
    assert!(
        exchanged.contains("r 5\n") && exchanged.contains("c 5\n"),
        "{exchanged:?}"
    );
    let hexadecimal = outcomes(&mapcli, Change::Step, "i 0xf\n", None);
    assert!(hexadecimal.contains("i 0x10\n"), "{hexadecimal:?}");
}

#[test]
fn numbers_stay_in_their_range() {
    let ranged = mutator("n {int:1-50}\nm {u8:7-9}\n");
    for change in [
        Change::Step,
        Change::Boundary,
        Change::Big,
        Change::Renew,
        Change::Token,
    ] {
        let mut ranged = ranged.clone();
        ranged.tokens.add_number(0xc0ffee);
        for text in outcomes(&ranged, change, "n 25\nm \x08\n", None) {
            let (n, m) = text.split_once("\nm ").expect("both operations");
            let n: i64 = n[2..].parse().expect("a number");
            assert!((1..=50).contains(&n), "{change:?}: {text:?}");
            assert!((7..=9).contains(&m.as_bytes()[0]), "{change:?}: {text:?}");
        }
    }
}

#[test]
fn tokens_and_operands_get_to_where_they_belong() {
    let mut mapcli = mutator("k {key}\n{word} {key}");
    assert!(outcomes(&mapcli, Change::Token, "k 7\n", None).is_empty());
    assert!(outcomes(&mapcli, Change::Operand, "k 7\n", None).is_empty());
    mapcli.tokens.add_number(0xc0ffee);
    mapcli.tokens.add_found(b"incr");
    let tokens = outcomes(&mapcli, Change::Token, "k 7\n", None);
    assert!(
        tokens.contains("k 12648430\n") && tokens.contains("k incr\n"),
        "{tokens:?}"
    );
    let words = outcomes(&mapcli, Change::Token, "get 7\n", None);
    assert!(words.contains("incr 7\n"), "{words:?}");
    mapcli.tokens.add_number_pair(7, 31337);
    mapcli.tokens.add_pair(b"get", b"getall");
    let operands = outcomes(&mapcli, Change::Operand, "k 7\nget 8\n", None);
    assert!(
        operands
            .iter()
            .eq(["k 31337\nget 8\n", "k 7\ngetall 8\n"].iter()),
        "{operands:?}"
    );
    // A key in hexadecimal stays so; `operand` compares what is written.
    let binary = {
        let mut binary = mutator("@separator\n\\x01{u16be:key}");
        binary.tokens.add_number_pair(7, 0x1234);
        outcomes(&binary, Change::Operand, "\x01\x00\x07", None)
    };
    assert!(binary.contains("\x01\x12\x34"), "{binary:?}");
}

#[test]
fn lengths_follow_their_data_and_are_sometimes_wrong() {
    let server = mutator("@separator \\r\\n\nset {key} {len}\\r\\n{data}");
    for change in [Change::Step, Change::Renew, Change::Big] {
        for text in outcomes(&server, change, "set 1 3\r\nabc\r\n", None) {
            let (head, data) = text.split_once("\r\n").expect("two lines");
            let length = head
                .rsplit(' ')
                .next()
                .and_then(|length| length.parse().ok());
            assert_eq!(length, Some(data.len() - 2), "{change:?}: {text:?}");
        }
    }
    let wrong = outcomes(&server, Change::Length, "set 1 3\r\nabc\r\n", None);
    assert!(wrong.contains("set 1 4\r\nabc\r\n") && wrong.contains("set 1 -1\r\nabc\r\n"));
}

#[test]
fn orders_change() {
    let mapcli = mutator(MAPCLI);
    let swapped = outcomes(&mapcli, Change::Swap, "i 1\nr 1\n", None);
    assert!(swapped.iter().eq(["r 1\ni 1\n"].iter()), "{swapped:?}");
    let shuffled = outcomes(&mapcli, Change::Shuffle, "i 1\ni 2\ni 3\n", None);
    assert_eq!(shuffled.len(), 5, "{shuffled:?}");
    let moved = outcomes(&mapcli, Change::Move, "i 1\ni 2\ni 3\n", None);
    assert!(moved.contains("i 2\ni 3\ni 1\n"), "{moved:?}");
    // The last one has no separator; what is moved there or from there is still an operation.
    let swapped = outcomes(&mapcli, Change::Swap, "i 1\nr 1", None);
    assert!(swapped.iter().eq(["r 1\ni 1\n"].iter()), "{swapped:?}");
}

#[test]
fn inputs_are_merged() {
    let mapcli = mutator(MAPCLI);
    assert!(outcomes(&mapcli, Change::Concatenate, "i 1\n", None).is_empty());
    let merged = outcomes(
        &mapcli,
        Change::Concatenate,
        "i 1\ni 2\n",
        Some("r 1\nr 2\n"),
    );
    for expected in ["i 1\ni 2\nr 1\nr 2\n", "r 1\nr 2\ni 1\ni 2\n", "i 1\nr 2\n"] {
        assert!(
            merged.contains(expected),
            "{expected:?} is not in {merged:?}"
        );
    }
    let woven = outcomes(
        &mapcli,
        Change::Interleave,
        "i 1\ni 2\n",
        Some("r 1\nr 2\n"),
    );
    assert!(woven.contains("i 1\nr 1\ni 2\nr 2\n"), "{woven:?}");
    for text in &woven {
        let of = |letter: char| {
            text.lines()
                .filter(|line| line.starts_with(letter))
                .collect()
        };
        let mine: Vec<&str> = of('i');
        assert_eq!(mine, ["i 1", "i 2"], "each keeps its own order");
    }
}

#[test]
fn structures_are_filled_and_drained() {
    let mapcli = mutator(MAPCLI);
    let filled = outcomes(&mapcli, Change::Populate, "i 5\n", None);
    let inserts = |text: &str| text.lines().filter(|line| line.starts_with("i ")).count();
    assert!(filled.iter().any(|text| inserts(text) > 64));
    let consecutive = "i 1\ni 2\ni 3\ni 4\n";
    assert!(
        filled.iter().any(|text| text.contains(consecutive)),
        "consecutive keys"
    );
    assert!(
        filled
            .iter()
            .any(|text| text.contains("i 4\ni 3\ni 2\ni 1\n")),
        "backwards"
    );
    let mostly = filled
        .iter()
        .filter(|text| inserts(text) == lines(text).len())
        .count();
    assert!(
        mostly > filled.len() / 2,
        "what is named so inserts, mostly"
    );
    assert!(mostly < filled.len(), "but not always: names may lie");

    let drained = outcomes(&mapcli, Change::Drain, "i 1\ni 2\ni 3\n", None);
    for expected in ["r 3\nr 2\nr 1\n", "r 1\nr 2\nr 3\n", "r 1\nr 3\nr 2\n"] {
        let expected = format!("i 1\ni 2\ni 3\n{expected}");
        assert!(
            drained.contains(&expected),
            "{expected:?} is not in {drained:?}"
        );
    }
    assert!(
        outcomes(&mapcli, Change::Drain, "p\n", None).is_empty(),
        "nothing was inserted"
    );
}

#[test]
fn keys_of_words_are_filled_with_words() {
    let server = mutator("set {key} {value}\ndel {key}");
    let filled = outcomes(&server, Change::Populate, "set user7 1\n", None);
    assert!(
        filled.iter().any(|text| text.contains("set user2 ")),
        "{:?}",
        filled.first()
    );
    let drained = outcomes(&server, Change::Drain, "set user7 1\nset user8 1\n", None);
    assert!(drained.contains("set user7 1\nset user8 1\ndel user8\ndel user7\n"));
}

#[test]
fn binary_protocols_are_filled_and_drained_too() {
    let binary =
        mutator("@separator\n@insert \\x01{u32le:key}{u8:len}{data:0-4}\n@remove \\x02{u16be:key}");
    let input = b"\x01\x05\x00\x00\x00\x00";
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let below: &mut dyn Below = &mut |n: usize| random.index(n);
        seen.extend(binary.apply(Change::Drain, input, None, below));
    }
    assert!(
        seen.contains(&b"\x01\x05\x00\x00\x00\x00\x02\x00\x05"[..]),
        "{seen:?}"
    );
}

#[test]
fn every_change_is_reached_and_named() {
    let mut mapcli = mutator("set {key} {len}\\n{data}\ni {key}\nr {key}\np");
    mapcli.tokens.add_number_pair(5, 31337);
    let weights = Weights::default();
    let mut random = Random::new(1);
    let mut seen = BTreeSet::new();
    for _ in 0..3000 {
        let below: &mut dyn Below = &mut |n: usize| random.index(n);
        let input = b"i 5\nset 5 2\nab\nr 6\n";
        let mutated = mapcli.mutate(input, Some(b"r 5\n"), &weights, below);
        assert!(!mutated.name().is_empty());
        seen.extend(mutated.changes);
    }
    assert!(seen.iter().eq(Change::ALL.iter()), "{seen:?}");
    let names: BTreeSet<&str> = Change::ALL.iter().map(|change| change.name()).collect();
    assert_eq!(names.len(), Change::ALL.len());
    for change in Change::ALL {
        let saved = serde_json::to_string(&change).expect("plain data");
        assert_eq!(saved, format!("\"{}\"", change.name()));
    }
}

#[test]
fn the_same_numbers_give_the_same_inputs() {
    let mapcli = mutator(MAPCLI);
    let weights = Weights::default();
    let run = || {
        let mut random = Random::new(9);
        let mut input = b"i 5\n".to_vec();
        for _ in 0..200 {
            let below: &mut dyn Below = &mut |n: usize| random.index(n);
            input = mapcli
                .mutate(&input, Some(b"i 1\nr 1\n"), &weights, below)
                .input;
        }
        input
    };
    assert_eq!(run(), run());
}

#[test]
fn without_templates_nothing_is_changed() {
    let none = Mutator::new(crate::Templates::default());
    assert!(!none.knows_operations());
    let below: &mut dyn Below = &mut |_: usize| 0;
    let mutated = none.mutate(b"abc", None, &Weights::default(), below);
    assert_eq!((mutated.input, mutated.changes.len()), (b"abc".to_vec(), 0));
}

/// Over random templates and chains of changes: something else comes out, within the limits, and it
/// is still an input of the same form.
#[test]
fn chains_of_changes_stay_within_the_limits() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let templates = any_templates(&mut random);
        let limits = Limits {
            operations: 40,
            bytes: 2000,
            populate: 20,
        };
        let mut mutator = Mutator::new(templates).with_limits(limits);
        mutator.tokens.add_number_pair(5, 77_777);
        mutator.tokens.add_given(b"token");
        let weights = Weights::default();
        let mut below = |n: usize| random.index(n);
        let mut input = mutator.generate(&mut below);
        let mut other = mutator.generate(&mut below);
        for _ in 0..40 {
            let mutated = mutator.mutate(&input, Some(&other), &weights, &mut below);
            assert_ne!(mutated.input, input, "seed {seed}: {:?}", mutated.changes);
            assert!(!mutated.changes.is_empty());
            let templates = mutator.templates();
            let parsed = Sequence::parse(&mutated.input, templates);
            assert_eq!(parsed.begins, !templates.begin.is_empty(), "seed {seed}");
            // One operation alone may be longer than the limit.
            assert!(
                mutated.input.len() <= limits.bytes || parsed.operations.len() < 6,
                "seed {seed}: {} bytes in {} operations",
                mutated.input.len(),
                parsed.operations.len()
            );
            other = std::mem::replace(&mut input, mutated.input);
        }
    }
}

/// What another input has left is probed with its keys, and with all operations that there are.
#[test]
fn probes_meet_what_is_there() {
    let templates = "20x s {key} {key}\ng {key}\nd {key}"
        .parse()
        .expect("templates");
    let mutator = Mutator::new(templates);
    let mut state = 5u64;
    let mut below = |n: usize| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    let mut seen = [0; 2];
    for _ in 0..200 {
        let probe = mutator.probe(b"s 7117 5\n", &mut below).expect("a probe");
        let text = String::from_utf8(probe).expect("text");
        assert!((1..=3).contains(&text.lines().count()), "{text:?}");
        seen[0] += usize::from(text.starts_with("g 7117\n"));
        seen[1] += usize::from(text.starts_with("d 7117\n"));
    }
    assert!(seen.iter().all(|count| *count >= 5), "{seen:?}");
    let nothing = Mutator::new(crate::Templates::default());
    assert_eq!(nothing.probe(b"s 1 2\n", &mut below), None);
}

/// A command that no seed has, which the program reads by `sscanf`.
#[test]
fn commands_are_learnt_from_formats() {
    let mut learns = mutator("put {key} {key}\nget {key}").learning();
    assert!(learns.learn_format(b"swap %u %u\0"));
    assert!(learns.learn_format(b"put %u %u\0"));
    assert!(!learns.learn_format(b"compact\0"));
    let shown = learns.templates().to_string();
    assert_eq!(shown.matches("swap {key} {key}").count(), 1, "{shown}");
    assert_eq!(shown.matches("put {key} {key}").count(), 1, "{shown}");
    for number in 0..1000 {
        assert!(learns.learn_format(format!("c{number} %d\0").as_bytes()));
    }
    assert!(learns.templates().operations.len() < 100);
    // What somebody has said, or what is no text, stays.
    let mut said = mutator("put {key}");
    assert!(said.learn_format(b"swap %u %u\0"));
    assert_eq!(said.templates().operations.len(), 1);
    let mut nothing = Mutator::new(crate::Templates::default()).learning();
    assert!(nothing.learn_format(b"swap %u %u\0"));
    assert!(!nothing.knows_operations());
}
