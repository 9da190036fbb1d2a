//! Answers, compared with those of trying all inputs.

mod common;

use std::time::Duration;

use brownout_random::Random;
use brownout_solve::{Answer, Expr, Settings, Solver};
use common::Both;

/// A path and a goal over so many bytes, and the input under which the path is true.
fn query(random: &mut Random, inputs: u32) -> (Both, Vec<usize>, usize, Vec<u8>) {
    let mut both = Both::new(inputs);
    for _ in 0..3 + random.index(14) {
        let step = (
            random.bits() as u8,
            (random.bits() >> 8) as u8,
            (random.bits() >> 8) as u8,
            (random.bits() >> 8) as u8,
            random.bits() >> 3,
        );
        both.step(step, 32);
    }
    let current: Vec<u8> = (0..inputs).map(|_| (random.bits() >> 9) as u8).collect();
    let mut conditions: Vec<usize> = Vec::new();
    for _ in 0..1 + random.index(5) {
        let at = random.index(both.plain.len());
        let condition = both.condition(at, random.bits() >> 3);
        conditions.push(condition);
    }
    let goal = conditions.pop().unwrap();
    let values = both.values(&|index| current[index as usize]);
    let path = conditions
        .into_iter()
        .map(|condition| {
            if values[condition] == 1 {
                condition
            } else {
                both.not(condition)
            }
        })
        .collect();
    (both, path, goal, current)
}

/// Whether the answer is what the definitions say; `any` is whether there is a model.
fn check(answer: &Answer, query: &(Both, Vec<usize>, usize, Vec<u8>), any: bool, seed: u64) {
    let (both, path, goal, current) = query;
    match answer {
        Answer::Sat(changes) => {
            assert!(any, "seed {seed}: a model where there is none");
            let mut bytes = current.clone();
            for &(index, value) in changes {
                assert_ne!(
                    bytes[index as usize], value,
                    "seed {seed}: a change that is none"
                );
                bytes[index as usize] = value;
            }
            let values = both.values(&|index| bytes[index as usize]);
            let holds = path
                .iter()
                .chain([goal])
                .all(|&condition| values[condition] == 1);
            assert!(holds, "seed {seed}: {changes:?} is no model");
        }
        Answer::Unsat => assert!(!any, "seed {seed}: there is a model"),
        Answer::Unknown(why) => panic!("seed {seed}: {why}"),
    }
}

fn expressions(query: &(Both, Vec<usize>, usize, Vec<u8>)) -> (Vec<Expr>, Expr) {
    let (both, path, goal, _) = query;
    (
        path.iter().map(|&at| both.expressions[at]).collect(),
        both.expressions[*goal],
    )
}

#[test]
fn two_bytes_are_answered_as_by_brute_force() {
    let (mut sat, mut unsat, mut enumerated, mut blasted) = (0, 0, 0, 0);
    for seed in 0..400 {
        let mut query = query(&mut Random::new(seed), 2);
        let (path, goal) = expressions(&query);
        let all: Vec<Expr> = path.iter().copied().chain([goal]).collect();
        // The plain values are slow; that both are the same is what another test is about.
        let any = (0..=u16::MAX).any(|value| {
            let bytes = value.to_le_bytes();
            let input = |index: u32| bytes[index as usize];
            query.0.pool.eval(goal, &input) == 1
                && query
                    .0
                    .pool
                    .eval_all(&all, &input)
                    .iter()
                    .all(|&value| value == 1)
        });
        for enumeration in [true, false] {
            let mut solver = Solver::new(Settings {
                enumeration,
                time: Duration::from_secs(60),
                ..Settings::default()
            });
            let answer = solver.solve(&mut query.0.pool, &path, goal, &query.3);
            check(&answer, &query, any, seed);
            enumerated += solver.statistics().enumeration;
            blasted += solver.statistics().blasting;
        }
        *if any { &mut sat } else { &mut unsat } += 1;
    }
    assert!(sat > 50 && unsat > 50, "{sat} satisfiable, {unsat} not");
    assert!(
        enumerated > 100 && blasted > 100,
        "{enumerated} by trying, {blasted} by SAT"
    );
}

/// With a third byte, all values take too long; every so many are tried where the solver says that
/// there is no model.
#[test]
fn three_bytes_are_answered_as_by_brute_force() {
    let (mut sat, mut unsat, mut blasted) = (0, 0, 0);
    for seed in 1000..1060 {
        let mut query = query(&mut Random::new(seed), 3);
        let (path, goal) = expressions(&query);
        let mut solver = Solver::default();
        let answer = solver.solve(&mut query.0.pool, &path, goal, &query.3);
        // A model proves itself; only the absence of one needs all values.
        let any = match answer {
            Answer::Sat(_) => true,
            _ if query.0.pool.as_constant(goal) == Some(0) => false,
            _ => (0..1u32 << 24).step_by(31).any(|value| {
                let bytes = value.to_le_bytes();
                query.0.pool.eval(goal, &|index| bytes[index as usize]) == 1
                    && query
                        .0
                        .pool
                        .eval_all(&path, &|index| bytes[index as usize])
                        .iter()
                        .all(|&value| value == 1)
            }),
        };
        check(&answer, &query, any, seed);
        *if any { &mut sat } else { &mut unsat } += 1;
        blasted += solver.statistics().blasting;
    }
    assert!(
        sat > 10 && unsat > 5,
        "{sat} satisfiable, {unsat} not, {blasted} by SAT"
    );
}

/// Paths that grow, as in a run: the same answers as a solver gives that is new each time.
#[test]
fn a_solver_that_remembers_answers_as_a_new_one() {
    let mut cached = 0;
    for seed in 3000..3040 {
        let mut random = Random::new(seed);
        let mut both = Both::new(6);
        for _ in 0..40 {
            let step = (
                random.bits() as u8,
                (random.bits() >> 8) as u8,
                (random.bits() >> 8) as u8,
                (random.bits() >> 8) as u8,
                random.bits() >> 3,
            );
            both.step(step, 16);
        }
        let current: Vec<u8> = (0..6).map(|_| (random.bits() >> 9) as u8).collect();
        let mut path = Vec::new();
        for _ in 0..25 {
            let at = random.index(both.plain.len());
            let condition = both.condition(at, random.bits() >> 3);
            let values = both.values(&|index| current[index as usize]);
            path.push(if values[condition] == 1 {
                condition
            } else {
                both.not(condition)
            });
        }
        let conditions: Vec<Expr> = path.iter().map(|&at| both.expressions[at]).collect();
        let mut old = Solver::default();
        // Forwards, in any order, and with another path in between.
        let mut lengths: Vec<usize> = (0..path.len()).collect();
        lengths.extend((0..30).map(|_| random.index(path.len())));
        for len in lengths {
            let goal = both.pool.not(conditions[len]);
            let mut taken = conditions[..len].to_vec();
            if random.percent(20) && len > 1 {
                taken.remove(random.index(len));
            }
            let answer = old.solve(&mut both.pool, &taken, goal, &current);
            let fresh = Solver::new(Settings {
                time: Duration::from_secs(60),
                ..Settings::default()
            })
            .solve(&mut both.pool, &taken, goal, &current);
            match (&answer, &fresh) {
                (Answer::Sat(changes), Answer::Sat(_)) => {
                    let mut bytes = current.clone();
                    for &(index, value) in changes {
                        bytes[index as usize] = value;
                    }
                    let all: Vec<Expr> = taken.iter().copied().chain([goal]).collect();
                    let values = both.pool.eval_all(&all, &|index| bytes[index as usize]);
                    assert!(values.iter().all(|&value| value == 1), "seed {seed}");
                }
                (answer, fresh) => assert_eq!(answer, fresh, "seed {seed}"),
            }
        }
        cached += old.statistics().cache;
        assert_eq!(old.statistics().wrong_models, 0);
    }
    assert!(cached > 100, "{cached}");
}
