//! The text of a query means what the query does; and what other solvers say.

mod common;

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use brownout_random::Random;
use brownout_solve::{Answer, Expr, Pool, Settings, Solver, Statistics, to_smtlib, try_solver};
use common::Both;

const Z3: &str = "/usr/bin/z3";

/// A term, as read back.
#[derive(Clone, Debug)]
enum Term {
    Word(String),
    List(Vec<Term>),
}

fn read(text: &str) -> Vec<Term> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let mut stack = vec![Vec::new()];
    for word in spaced.split_whitespace() {
        match word {
            "(" => stack.push(Vec::new()),
            ")" => {
                let list = stack.pop().unwrap();
                stack.last_mut().unwrap().push(Term::List(list));
            }
            word => stack.last_mut().unwrap().push(Term::Word(word.to_owned())),
        }
    }
    assert_eq!(stack.len(), 1, "parentheses");
    stack.pop().unwrap()
}

/// Value and width of a term; a truth value has width 0.
fn value(term: &Term, known: &HashMap<String, (u128, u32)>) -> (u128, u32) {
    let list = match term {
        Term::Word(word) => {
            return match word.strip_prefix("#b") {
                Some(digits) => (
                    u128::from_str_radix(digits, 2).unwrap(),
                    digits.len() as u32,
                ),
                None => known[word],
            };
        }
        Term::List(list) => list,
    };
    let number = |term: &Term| -> u32 {
        let Term::Word(word) = term else {
            panic!("{term:?}")
        };
        word.parse().unwrap()
    };
    match &list[0] {
        Term::Word(word) if word == "_" => {
            let Term::Word(constant) = &list[1] else {
                panic!("{list:?}")
            };
            (
                constant.strip_prefix("bv").unwrap().parse().unwrap(),
                number(&list[2]),
            )
        }
        Term::List(indexed) => {
            let Term::Word(name) = &indexed[1] else {
                panic!("{indexed:?}")
            };
            let (a, bits) = value(&list[1], known);
            let by = number(&indexed[2]);
            match name.as_str() {
                "extract" => {
                    let low = number(&indexed[3]);
                    (a >> low & common::ones(by - low + 1), by - low + 1)
                }
                "zero_extend" => (a, bits + by),
                "sign_extend" => {
                    let sign = a >> (bits - 1) & 1 == 1;
                    let high = common::ones(bits + by) & !common::ones(bits);
                    (if sign { a | high } else { a }, bits + by)
                }
                _ => panic!("{name}"),
            }
        }
        Term::Word(name) => {
            let operands: Vec<(u128, u32)> =
                list[1..].iter().map(|term| value(term, known)).collect();
            let (a, bits) = operands[0];
            match name.as_str() {
                "ite" => operands[if a == 1 { 1 } else { 2 }],
                "=" => {
                    assert_eq!(bits, operands[1].1);
                    ((a == operands[1].0).into(), 0)
                }
                "bvnot" => (!a & common::ones(bits), bits),
                "bvneg" => (a.wrapping_neg() & common::ones(bits), bits),
                "concat" => (a << operands[1].1 | operands[1].0, bits + operands[1].1),
                name => {
                    let name = name.strip_prefix("bv").unwrap();
                    assert_eq!(bits, operands[1].1);
                    let result = if matches!(name, "ult" | "slt") {
                        0
                    } else {
                        bits
                    };
                    (common::binary(name, bits, a, operands[1].0), result)
                }
            }
        }
    }
}

/// Whether all assertions are true under this input.
fn holds(text: &str, input: &[u8]) -> bool {
    let mut known = HashMap::new();
    let mut all = true;
    for command in read(text) {
        let Term::List(command) = command else {
            panic!("{command:?}")
        };
        let Term::Word(name) = &command[0] else {
            panic!("{command:?}")
        };
        match (name.as_str(), command.get(1)) {
            ("declare-fun", Some(Term::Word(name))) => {
                let index: usize = name.strip_prefix("in").unwrap().parse().unwrap();
                known.insert(name.clone(), (input[index].into(), 8));
            }
            ("define-fun", Some(Term::Word(name))) => {
                let Term::List(sort) = &command[3] else {
                    panic!("{command:?}")
                };
                let Term::Word(bits) = &sort[2] else {
                    panic!("{command:?}")
                };
                let defined = value(&command[4], &known);
                assert_eq!(defined.1.to_string(), *bits, "{command:?}");
                known.insert(name.clone(), defined);
            }
            ("assert", Some(term)) => all &= value(term, &known).0 == 1,
            ("set-logic" | "check-sat", _) => {}
            _ => panic!("{command:?}"),
        }
    }
    all
}

fn random_query(seed: u64, inputs: u32) -> (Both, Vec<Expr>, Expr, Vec<u8>) {
    let mut random = Random::new(seed);
    let mut both = Both::new(inputs);
    for _ in 0..4 + random.index(25) {
        let mut byte = || (random.bits() >> 8) as u8;
        let step = (byte(), byte(), byte(), byte(), random.bits() >> 3);
        both.step(step, 64);
    }
    let current: Vec<u8> = (0..inputs).map(|_| (random.bits() >> 9) as u8).collect();
    let mut path = Vec::new();
    for _ in 0..random.index(4) {
        let at = random.index(both.plain.len());
        let at = both.condition(at, random.bits() >> 3);
        let condition = both.expressions[at];
        let holds = both.pool.eval(condition, &|index| current[index as usize]) == 1;
        path.push(if holds {
            condition
        } else {
            both.pool.not(condition)
        });
    }
    let goal = both.condition(both.plain.len() - 1, random.bits() >> 3);
    let goal = both.expressions[goal];
    (both, path, goal, current)
}

#[test]
fn the_text_means_what_the_expressions_do() {
    let mut seen = [0, 0];
    for seed in 0..300 {
        let (both, path, goal, _) = random_query(seed, 3);
        let text = to_smtlib(&both.pool, &path, goal);
        let all: Vec<Expr> = path.iter().copied().chain([goal]).collect();
        let mut random = Random::new(seed);
        for _ in 0..20 {
            let bytes = [0; 3].map(|_: u8| (random.bits() >> 7) as u8);
            let values = both.pool.eval_all(&all, &|index| bytes[index as usize]);
            let expected = values.iter().all(|&value| value == 1);
            assert_eq!(
                holds(&text, &bytes),
                expected,
                "seed {seed}, {bytes:?}:\n{text}"
            );
            seen[usize::from(expected)] += 1;
        }
    }
    assert!(seen[0] > 500 && seen[1] > 500, "{seen:?}");
}

#[test]
fn what_is_shared_is_written_once() {
    let mut pool = Pool::new();
    let mut e = pool.input(0);
    let k = pool.constant(8, 3);
    for _ in 0..2000 {
        let moved = pool.lshr(e, k);
        let product = pool.mul(e, e);
        e = pool.xor(moved, product);
    }
    let goal = pool.eq(e, k);
    let text = to_smtlib(&pool, &[], goal);
    assert!(text.len() < 1_000_000, "{} bytes", text.len());
    let deepest = text.lines().map(|line| line.matches('(').count()).max();
    assert!(deepest < Some(200), "{deepest:?}");
}

/// Programs that stand in for a solver: they take a query and print a fixed answer.
const STAND_INS: [(&str, &str); 6] = [
    (
        "sat",
        "cat >/dev/null; echo 'sat ((in0 #x02) (in1 #x03) (in2 #x07))'",
    ),
    (
        "unsat",
        "cat >/dev/null; echo unsat; echo '(error \"no model\")'",
    ),
    ("unknown", "cat >/dev/null; echo unknown"),
    ("garbage", "echo sat; echo sat; exit 3"),
    ("silent", "exec sleep 60"),
    (
        "liar",
        "cat >/dev/null; echo 'sat ((in0 #x02) (in1 #x03) (in2 #x08))'",
    ),
];

/// Where the stand-in is. All are written before the first is started, and each process has its
/// own: a file that somebody writes while this one forks could not be executed.
fn stand_in(name: &str) -> PathBuf {
    static WRITTEN: OnceLock<PathBuf> = OnceLock::new();
    let folder = WRITTEN.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("solve-stand-ins-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, script) in STAND_INS {
            let path = folder.join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        folder
    });
    folder.join(name)
}

/// A query for which the SAT solver gets no budget.
fn ask(external: &Path) -> (Answer, Solver) {
    let mut pool = Pool::new();
    let bytes = [0, 1, 2].map(|index| pool.input(index));
    let sum = pool.add(bytes[0], bytes[1]);
    let product = pool.mul(sum, bytes[2]);
    let k = pool.constant(8, 35);
    let goal = pool.eq(product, k);
    let mut solver = Solver::new(Settings {
        gates: 1,
        enumeration: false,
        // One of them never answers; the others may be slow on a busy machine.
        time: Duration::from_secs(if external.ends_with("silent") { 1 } else { 60 }),
        external: Some(external.to_owned()),
        ..Settings::default()
    });
    let answer = solver.solve(&mut pool, &[], goal, &[0; 3]);
    (answer, solver)
}

#[test]
fn an_external_solver_is_asked_what_is_too_hard() {
    let binary = stand_in("sat");
    let (answer, solver) = ask(&binary);
    assert_eq!(answer, Answer::Sat(vec![(0, 2), (1, 3), (2, 7)]));
    assert_eq!(solver.statistics().external, 1);
    let binary = stand_in("unsat");
    assert_eq!(ask(&binary).0, Answer::Unsat);
}

#[test]
fn an_external_solver_that_does_not_answer_is_none() {
    let too_large = Answer::Unknown("the query is too large for the SAT solver");
    let binaries = [
        stand_in("unknown"),
        stand_in("garbage"),
        stand_in("silent"),
        PathBuf::from("/nonexistent/z3"),
    ];
    for binary in binaries {
        assert_eq!(ask(&binary).0, too_large, "{}", binary.display());
    }
}

#[test]
fn what_is_no_solver_is_found_out() {
    let missing = try_solver(Path::new("/nonexistent/z3")).unwrap_err();
    assert!(missing.contains("cannot be run"), "{missing}");
    let silent = try_solver(Path::new("/bin/cat")).unwrap_err();
    assert!(silent.contains("does not answer"), "{silent}");
    if Path::new(Z3).exists() {
        assert_eq!(try_solver(Path::new(Z3)), Ok(()));
    }
}

#[test]
fn queries_are_kept_if_that_is_wanted() {
    let folder = std::env::temp_dir().join(format!("brownout-queries-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut solver = Solver::new(Settings {
        record: Some(folder.clone()),
        ..Settings::default()
    });
    let mut pool = Pool::new();
    let byte = pool.input(3);
    let seven = pool.constant(8, 7);
    let is_seven = pool.eq(byte, seven);
    let other = pool.not(is_seven);
    solver.solve(&mut pool, &[], is_seven, &[0; 4]);
    solver.solve(&mut pool, &[is_seven], other, &[7; 4]);
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().collect();
    files.sort_by_key(std::fs::DirEntry::path);
    let text = |file: &std::fs::DirEntry| std::fs::read_to_string(file.path()).unwrap();
    let texts: Vec<String> = files.iter().map(text).collect();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(texts.len(), 2);
    assert!(texts[0].starts_with("; sat\n(set-logic"), "{}", texts[0]);
    assert!(texts[1].starts_with("; unsat\n(set-logic"), "{}", texts[1]);
    assert!(texts[1].ends_with("(check-sat)\n"), "{}", texts[1]);
}

#[test]
fn an_external_solver_is_not_believed() {
    let (answer, solver) = ask(&stand_in("liar"));
    assert_eq!(answer, Answer::Unknown("a model that did not hold"));
    assert_eq!(solver.statistics().wrong_models, 1);
}

/// Asks some questions in several threads, each with a solver of its own, and keeps them in this
/// folder. How many there were, and how many could not be kept.
fn asked_side_by_side(folder: &Path) -> (u64, u64) {
    let settings = Settings {
        record: Some(folder.to_owned()),
        ..Settings::default()
    };
    let one = |seed: u64| {
        let mut solver = Solver::new(settings.clone());
        for seed in [seed, seed + 100, seed + 200] {
            let (mut both, path, goal, current) = random_query(seed, 2);
            solver.solve(&mut both.pool, &path, goal, &current);
        }
        solver.statistics().clone()
    };
    let all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || one(seed))).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|ended| ended.expect("no panic")).collect()
    });
    for one in &all {
        assert_eq!(one.unrecorded > 0, one.not_recorded.is_some(), "{one:?}");
    }
    let sum = |of: fn(&Statistics) -> u64| all.iter().map(of).sum();
    (sum(|one| one.queries), sum(|one| one.unrecorded))
}

#[test]
fn queries_of_several_solvers_are_all_kept() {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recorded");
    let _ = std::fs::remove_dir_all(&all);
    let folder = all.join("not/there/yet");
    assert_eq!(asked_side_by_side(&folder), (12, 0));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 12);
    // Where no folder can be, that is known.
    let file = all.join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(asked_side_by_side(&file), (12, 12));
}

/// Queries of real searches, which `BROWNOUT_SYMEX_QUERIES=FOLDER brownout symex …` has left in
/// `BROWNOUT_QUERIES`: what was answered there is what z3 says.
/// `BROWNOUT_QUERIES=FOLDER cargo test -p brownout-solve --release recorded -- --ignored`
#[test]
#[ignore = "it needs Debian's z3, and queries"]
#[allow(
    clippy::print_stdout,
    reason = "the closing line says what was compared"
)]
fn recorded_answers_are_those_of_z3() {
    let folder = std::env::var_os("BROWNOUT_QUERIES").expect("BROWNOUT_QUERIES names a folder");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "smt2"))
        .collect();
    paths.sort();
    let mut counts: HashMap<(String, String), u32> = HashMap::new();
    let mut wrong = Vec::new();
    for path in &paths {
        let text = std::fs::read_to_string(path).unwrap();
        let ours = text.lines().next().unwrap_or_default();
        let ours = ours.trim_start_matches("; ").to_owned();
        let reply = std::process::Command::new(Z3)
            .arg("-T:60")
            .arg(path)
            .output();
        let theirs = String::from_utf8_lossy(&reply.unwrap().stdout)
            .trim()
            .to_owned();
        if ours != theirs && ours != "unknown" && theirs != "timeout" && theirs != "unknown" {
            wrong.push(format!("{}: {ours}, z3: {theirs}", path.display()));
        }
        *counts.entry((ours, theirs)).or_default() += 1;
    }
    println!("{} queries, by (ours, z3's): {counts:?}", paths.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!paths.is_empty());
}

/// The comparison itself: `cargo test -p brownout-solve --release -- --ignored`. That the text is
/// right, and that the answers are, is tested above and in `brute.rs` without it.
#[test]
#[ignore = "it needs Debian's z3"]
fn answers_are_those_of_z3() {
    assert!(Path::new(Z3).exists(), "{Z3} is not installed");
    let settings = Settings {
        time: Duration::from_secs(60),
        ..Settings::default()
    };
    let external = Settings {
        gates: 1,
        enumeration: false,
        external: Some(Z3.into()),
        ..settings.clone()
    };
    for seed in 5000..5300 {
        let (mut both, path, goal, current) = random_query(seed, 4);
        let ours = Solver::new(settings.clone()).solve(&mut both.pool, &path, goal, &current);
        let theirs = Solver::new(external.clone()).solve(&mut both.pool, &path, goal, &current);
        assert_eq!(
            matches!(ours, Answer::Sat(_)),
            matches!(theirs, Answer::Sat(_)),
            "seed {seed}: {ours:?}, {theirs:?}\n{}",
            to_smtlib(&both.pool, &path, goal)
        );
    }
}
