//! Files and inputs come from users, programs and other fuzzers: whatever they hold, nothing here
//! fails on it.

use brownout_inputs::{Below, Mutator, Sequence, Templates, Tokens, Weights, learn, minimise};
use brownout_random::Random;

/// Bytes among which those that mean something somewhere are frequent.
fn noise(random: &mut Random, most: u64) -> Vec<u8> {
    let pieces: &[&[u8]] = &[
        b"i 5",
        b"\n",
        b"\r\n",
        b"{key}",
        b"{int:1-9}",
        b"{len}",
        b"{data}",
        b"{",
        b"}",
        b":",
        b"|",
        b"\\",
        b"\\x4",
        b"@separator",
        b"@",
        b"#",
        b" ",
        b"3x ",
        b"\"",
        b"=",
        b"*1\r\n",
        b"$3\r\n",
        b"-",
        b"0x",
        b"\0",
        b"\xff",
        b";",
        b"99999999999999999999999",
        b"q",
        "\u{fc}".as_bytes(),
        b"{u16be:len}",
        b"{choice:a|b}",
    ];
    let mut bytes = Vec::new();
    for _ in 0..random.below(most) {
        match random.percent(90) {
            true => bytes.extend(random.pick(pieces)),
            false => bytes.push(random.below(256) as u8),
        }
    }
    bytes
}

#[test]
fn any_text_is_read_as_templates_or_refused() {
    let mut read = 0;
    for seed in 0..20_000 {
        let text = noise(&mut Random::new(seed), 12);
        let text = String::from_utf8_lossy(&text);
        match text.parse::<Templates>() {
            Ok(templates) => {
                read += 1;
                let again: Templates = templates.to_string().parse().expect("what was written");
                assert_eq!(again, templates, "seed {seed}: {text:?}\n{templates}");
            }
            Err(error) => {
                let lines = text.lines().count().max(1);
                assert!((1..=lines).contains(&error.line), "seed {seed}: {error}");
                let line = text.lines().nth(error.line - 1).unwrap_or_default();
                let columns = line.chars().count() + 1;
                assert!(
                    (1..=columns).contains(&error.column),
                    "seed {seed}: {error}\n{line:?}"
                );
            }
        }
    }
    assert!(read > 1000, "too few are templates: {read}");
}

#[test]
fn any_text_is_read_as_a_dictionary_or_refused() {
    for seed in 0..5000 {
        let text = noise(&mut Random::new(seed), 12);
        let mut tokens = Tokens::default();
        if let Err(error) = tokens.add_dictionary(&text) {
            assert!(error.line >= 1 && error.column >= 1);
        }
    }
}

/// From any seeds, templates are learnt that describe them; with those, any input is changed and
/// made small.
#[test]
fn any_input_is_changed() {
    for seed in 0..1500 {
        let mut random = Random::new(seed);
        let seeds: Vec<Vec<u8>> = (0..1 + random.below(2))
            .map(|_| noise(&mut random, 10))
            .collect();
        let mut tokens = Tokens::default();
        let templates = learn(&seeds, &mut tokens);
        let mut mutator = Mutator::new(templates);
        mutator.tokens = tokens;
        mutator.tokens.add_found(&noise(&mut random, 4));
        mutator
            .tokens
            .add_pair(&noise(&mut random, 3), &noise(&mut random, 3));
        mutator
            .tokens
            .add_number_pair(random.bits(), random.below(20));
        let mut input = noise(&mut random, 20);
        let other = seeds[0].clone();
        for _ in 0..10 {
            let templates = mutator.templates();
            assert_eq!(
                Sequence::parse(&input, templates).print(templates),
                input,
                "seed {seed}"
            );
            let below: &mut dyn Below = &mut |n: usize| random.index(n);
            let mutated = mutator.mutate(&input, Some(&other), &Weights::default(), below);
            assert_eq!(
                mutated.input != input,
                mutator.knows_operations(),
                "seed {seed}"
            );
            input = mutated.input;
        }
        let wanted = random.below(256) as u8;
        let mut holds = |input: &[u8]| input.contains(&wanted);
        let templates = mutator.templates();
        if let Some(small) = minimise(&input, templates, 300, &mut holds) {
            assert!(small.input.contains(&wanted), "seed {seed}");
        }
    }
}
