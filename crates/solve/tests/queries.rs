//! Queries as programs pose them, and how long they take.

use std::time::{Duration, Instant};

use brownout_solve::{Answer, Expr, Pool, Settings, Solver};

/// Answers a query, checks the answer and its time, and returns the changed input.
#[track_caller]
fn solved(pool: &mut Pool, path: &[Expr], goal: Expr, current: &[u8]) -> Vec<u8> {
    for &condition in path {
        assert_eq!(
            pool.eval(condition, &|i| current[i as usize]),
            1,
            "an untrue path"
        );
    }
    let answer = asked(pool, path, goal, current);
    let Answer::Sat(changes) = answer else {
        panic!("{answer:?}")
    };
    let mut bytes = current.to_vec();
    for (index, value) in changes {
        bytes[index as usize] = value;
    }
    for &condition in path.iter().chain([&goal]) {
        assert_eq!(pool.eval(condition, &|i| bytes[i as usize]), 1);
    }
    bytes
}

#[track_caller]
fn unsolvable(pool: &mut Pool, path: &[Expr], goal: Expr, current: &[u8]) {
    assert_eq!(asked(pool, path, goal, current), Answer::Unsat);
}

#[allow(clippy::print_stderr)]
#[track_caller]
fn asked(pool: &mut Pool, path: &[Expr], goal: Expr, current: &[u8]) -> Answer {
    // Not by the clock, because machines are busy: by what it takes.
    let mut solver = Solver::new(Settings {
        time: Duration::from_secs(600),
        ..Settings::default()
    });
    let start = Instant::now();
    let answer = solver.solve(pool, path, goal, current);
    let time = start.elapsed();
    let statistics = solver.statistics();
    eprintln!(
        "{}: {time:?}, {} gates, {} conflicts",
        std::thread::current().name().unwrap_or_default(),
        statistics.gates,
        statistics.conflicts,
    );
    answer
}

/// A number in decimal digits, and the conditions that they are digits.
fn decimal(pool: &mut Pool, digits: u32, bits: u32) -> (Expr, Vec<Expr>) {
    let mut path = Vec::new();
    let mut value = pool.constant(bits, 0);
    for index in 0..digits {
        let byte = pool.input(index);
        path.push(pool.within(byte, b'0'.into(), b'9'.into()));
        let (ten, zero) = (pool.constant(bits, 10), pool.constant(bits, b'0'.into()));
        let wide = pool.zext(byte, bits);
        let digit = pool.sub(wide, zero);
        let tens = pool.mul(value, ten);
        value = pool.add(tens, digit);
    }
    (value, path)
}

#[test]
fn a_number_of_four_digits() {
    for bits in [32, 64] {
        let mut pool = Pool::new();
        let (value, path) = decimal(&mut pool, 4, bits);
        let wanted = pool.constant(bits, 4242);
        let goal = pool.eq(value, wanted);
        assert_eq!(solved(&mut pool, &path, goal, b"1000"), b"4242");
        let too_much = pool.constant(bits, 10_000);
        let goal = pool.eq(value, too_much);
        unsolvable(&mut pool, &path, goal, b"1000");
        let goal = pool.ult(value, wanted);
        let above = pool.not(goal);
        let bytes = solved(&mut pool, &path, above, b"1000");
        // One digit is enough.
        assert_eq!(bytes.iter().zip(b"1000").filter(|(a, b)| a != b).count(), 1);
    }
}

#[test]
fn a_number_of_ten_digits() {
    let mut pool = Pool::new();
    let (value, path) = decimal(&mut pool, 10, 64);
    let wanted = pool.constant(64, 4_294_967_296);
    let goal = pool.eq(value, wanted);
    assert_eq!(solved(&mut pool, &path, goal, b"0000000001"), b"4294967296");
}

#[test]
fn a_string_comparison() {
    let mut pool = Pool::new();
    let word = b"persistent";
    let (mut path, mut current) = (Vec::new(), b"xxxxxxxxxxxxxxx".to_vec());
    // As strcmp goes: a byte after the other, each a query.
    for (index, &wanted) in (0..).zip(word) {
        let (byte, k) = (pool.input(index), pool.constant(8, wanted.into()));
        let goal = pool.eq(byte, k);
        current = solved(&mut pool, &path, goal, &current);
        path.push(goal);
    }
    assert_eq!(current, b"persistentxxxxx");
    // All at once, as memcmp by words does.
    let mut loaded = pool.input(0);
    for index in 1..8 {
        let byte = pool.input(index);
        loaded = pool.concat(byte, loaded);
    }
    let wanted = pool.constant(64, u64::from_le_bytes(*b"POOLHEAD").into());
    let difference = pool.sub(loaded, wanted);
    let zero = pool.constant(64, 0);
    let goal = pool.eq(difference, zero);
    let bytes = solved(&mut pool, &[], goal, b"xxxxxxxxxxxx");
    assert_eq!(bytes, b"POOLHEADxxxx");
}

#[test]
fn a_table_of_choices() {
    let mut pool = Pool::new();
    let byte = pool.input(0);
    let mut value = pool.constant(32, 0);
    for case in 0..256u32 {
        let (k, result) = (
            pool.constant(8, case.into()),
            pool.constant(32, (case * 37 % 251).into()),
        );
        let condition = pool.eq(byte, k);
        value = pool.ite(condition, result, value);
    }
    let wanted = pool.constant(32, 200);
    let goal = pool.eq(value, wanted);
    let bytes = solved(&mut pool, &[], goal, &[0]);
    assert_eq!(u32::from(bytes[0]) * 37 % 251, 200);
    // Two of them, added.
    let second = pool.input(1);
    let mut other = pool.constant(32, 0);
    for case in 0..64u32 {
        let (k, result) = (
            pool.constant(8, case.into()),
            pool.constant(32, (case * case).into()),
        );
        let condition = pool.eq(second, k);
        other = pool.ite(condition, result, other);
    }
    let sum = pool.add(value, other);
    let wanted = pool.constant(32, 250 + 63 * 63);
    let goal = pool.eq(sum, wanted);
    let bytes = solved(&mut pool, &[], goal, &[0, 0]);
    assert_eq!((u32::from(bytes[0]) * 37 % 251, bytes[1]), (250, 63));
}

#[test]
fn a_length_that_overflows() {
    let mut pool = Pool::new();
    let bytes = [0, 1, 2, 3].map(|index| pool.input(index));
    let mut length = bytes[0];
    for byte in &bytes[1..] {
        length = pool.concat(*byte, length);
    }
    // length * 24 is small as 32 bits, though length is large.
    let factor = pool.constant(32, 24);
    let size = pool.mul(length, factor);
    let (small, large) = (pool.constant(32, 64), pool.constant(32, 1000));
    let fits = pool.ult(size, small);
    let many = pool.ult(large, length);
    let found = solved(&mut pool, &[fits], many, &[1, 0, 0, 0]);
    let length = u32::from_le_bytes(found.try_into().unwrap());
    assert!(length > 1000 && length.wrapping_mul(24) < 64);
}

#[test]
fn signed_comparisons() {
    let mut pool = Pool::new();
    let (low, high) = (pool.input(0), pool.input(1));
    let number = pool.concat(high, low);
    let wide = pool.sext(number, 32);
    let (minus, plus) = (
        pool.constant(32, (-1000i32) as u32 as u128),
        pool.constant(32, 1000),
    );
    let below = pool.slt(wide, minus);
    let bytes = solved(&mut pool, &[], below, &[5, 0]);
    assert!(i16::from_le_bytes(bytes.try_into().unwrap()) < -1000);
    let above = pool.slt(plus, wide);
    unsolvable(&mut pool, &[below], above, &[0, 0x80]);
    // The usual check that forgets negative numbers.
    let other = pool.input(2);
    let other = pool.sext(other, 32);
    let sum = pool.add(wide, other);
    let limit = pool.constant(32, 100);
    let checked = pool.slt(sum, limit);
    let negative = pool.constant(32, 0);
    let goal = pool.slt(sum, negative);
    solved(&mut pool, &[checked], goal, &[5, 0, 5]);
}

#[test]
fn division_by_ten() {
    let mut pool = Pool::new();
    let bytes = [0, 1, 2, 3].map(|index| pool.input(index));
    let mut number = bytes[0];
    for byte in &bytes[1..] {
        number = pool.concat(*byte, number);
    }
    let ten = pool.constant(32, 10);
    let (quotient, remainder) = (pool.udiv(number, ten), pool.urem(number, ten));
    let (seven, wanted) = (pool.constant(32, 7), pool.constant(32, 123_456));
    let (last, rest) = (pool.eq(remainder, seven), pool.eq(quotient, wanted));
    let goal = pool.and(last, rest);
    let found = solved(&mut pool, &[], goal, &[0; 4]);
    assert_eq!(u32::from_le_bytes(found.try_into().unwrap()), 1_234_567);
    // As compilers do it: by a product and a shift.
    let wide = pool.zext(number, 64);
    let magic = pool.constant(64, 0xcccc_cccd);
    let product = pool.mul(wide, magic);
    let by = pool.constant(64, 35);
    let shifted = pool.lshr(product, by);
    let wanted = pool.constant(64, 123_456);
    let goal = pool.eq(shifted, wanted);
    let found = solved(&mut pool, &[], goal, &[0; 4]);
    assert_eq!(u32::from_le_bytes(found.try_into().unwrap()) / 10, 123_456);
    // Signed, and by a number that is input, too.
    let divisor = pool.input(4);
    let divisor = pool.zext(divisor, 32);
    let quotient = pool.sdiv(number, divisor);
    let wanted = pool.constant(32, (-77i32) as u32 as u128);
    let zero = pool.constant(32, 0);
    let by_zero = pool.eq(divisor, zero);
    let not_by_zero = pool.not(by_zero);
    let goal = pool.eq(quotient, wanted);
    let found = solved(&mut pool, &[not_by_zero], goal, &[0, 0, 0, 0, 3]);
    let number = i32::from_le_bytes(found[..4].try_into().unwrap());
    assert_eq!(number / i32::from(found[4]), -77);
}

#[test]
fn a_vector_of_sixteen_bytes() {
    let mut pool = Pool::new();
    let wanted = b"SQLite format 3\0";
    let (ones, zeros) = (pool.constant(8, 0xff), pool.constant(8, 0));
    let mut mask: Option<Expr> = None;
    for (index, &wanted) in (0..).zip(wanted) {
        let (byte, k) = (pool.input(index), pool.constant(8, wanted.into()));
        let equal = pool.eq(byte, k);
        let lane = pool.ite(equal, ones, zeros);
        let bit = pool.extract(lane, 7, 1);
        mask = Some(mask.map_or(bit, |low| pool.concat(bit, low)));
    }
    let mask = pool.zext(mask.unwrap(), 32);
    let all = pool.constant(32, 0xffff);
    let goal = pool.eq(mask, all);
    assert_eq!(solved(&mut pool, &[], goal, b"0123456789abcdef"), wanted);
    // And away from it: by one byte.
    let opposite = pool.not(goal);
    let bytes = solved(&mut pool, &[], opposite, wanted);
    assert_eq!(bytes.iter().zip(wanted).filter(|(a, b)| a != b).count(), 1);
}

#[test]
fn a_checksum_and_its_content() {
    // A sum over eight bytes is compared with the ninth; the goal changes the first.
    let mut pool = Pool::new();
    let mut sum = pool.constant(8, 0);
    for index in 0..8 {
        let byte = pool.input(index);
        sum = pool.add(sum, byte);
    }
    let stored = pool.input(8);
    let valid = pool.eq(sum, stored);
    let (first, k) = (pool.input(0), pool.constant(8, b'Z'.into()));
    let goal = pool.eq(first, k);
    let current = [1, 2, 3, 4, 5, 6, 7, 8, 36];
    let bytes = solved(&mut pool, &[valid], goal, &current);
    // The first, and one that makes up for it.
    assert_eq!(
        bytes.iter().zip(current).filter(|(a, b)| *a != b).count(),
        2
    );
}

#[test]
fn what_has_to_change_becomes_text() {
    let mut pool = Pool::new();
    let [byte, other, third] = [0, 1, 2].map(|index| pool.input(index));
    let is_larger = pool.ult(other, byte);
    let blank = pool.constant(8, b' '.into());
    let is_blank = pool.eq(byte, blank);
    let goal = pool.not(is_blank);
    // One byte is tied to another one, and all of its values are tried.
    let answer = Solver::default().solve(&mut pool, &[is_larger], goal, b" \0\0");
    assert_eq!(answer, Answer::Sat(vec![(0, b'1')]));
    // Three bytes of which none can be changed alone: the SAT solver is asked.
    let sum = pool.add(byte, other);
    let sum = pool.add(sum, third);
    let wanted = pool.constant(8, 200);
    let is_sum = pool.eq(sum, wanted);
    let low = [byte, other, third].map(|byte| pool.within(byte, b' '.into(), b'~'.into()));
    let Answer::Sat(changes) = Solver::default().solve(&mut pool, &low, is_sum, b"   ") else {
        panic!("it is possible");
    };
    let is_text = |(_, value): &(u32, u8)| value.is_ascii_graphic() || *value == b' ';
    assert!(changes.iter().all(is_text), "{changes:?}");
}

#[test]
fn what_has_nothing_to_do_with_the_goal_stays() {
    let mut pool = Pool::new();
    let mut path = Vec::new();
    for index in 0..64 {
        let (byte, next) = (pool.input(2 * index), pool.input(2 * index + 1));
        path.push(pool.ult(byte, next));
    }
    let current: Vec<u8> = (0..128)
        .map(|index| if index % 2 == 0 { 10 } else { 20 })
        .collect();
    let (byte, k) = (pool.input(40), pool.constant(8, 200));
    let goal = pool.eq(byte, k);
    let bytes = solved(&mut pool, &path, goal, &current);
    assert_eq!((bytes[40], bytes[41] > 200), (200, true));
    let changed = bytes.iter().zip(&current).filter(|(a, b)| a != b).count();
    assert_eq!(changed, 2);
}

#[test]
fn a_budget_is_kept() {
    // Factors of a product of two primes: hard for its size.
    let mut pool = Pool::new();
    let mut factors = Vec::new();
    for factor in 0..2 {
        let mut number = pool.input(factor * 4);
        for index in 1..4 {
            let byte = pool.input(factor * 4 + index);
            number = pool.concat(byte, number);
        }
        factors.push(pool.zext(number, 64));
    }
    let product = pool.mul(factors[0], factors[1]);
    let wanted = pool.constant(64, 2_971_215_073 * 3_267_000_013);
    let goal = pool.eq(product, wanted);
    let mut solver = Solver::new(Settings {
        conflicts: 3000,
        ..Settings::default()
    });
    let answer = solver.solve(&mut pool, &[], goal, &[0; 8]);
    assert_eq!(answer, Answer::Unknown("the SAT solver's budget is spent"));
    assert!(
        solver.statistics().conflicts <= 3100,
        "{:?}",
        solver.statistics()
    );
    let mut solver = Solver::new(Settings {
        conflicts: u64::MAX,
        time: Duration::from_millis(300),
        ..Settings::default()
    });
    // Without the limit it would not end.
    let answer = solver.solve(&mut pool, &[], goal, &[0; 8]);
    assert_eq!(answer, Answer::Unknown("the SAT solver's budget is spent"));
    let mut solver = Solver::new(Settings {
        gates: 100,
        ..Settings::default()
    });
    let answer = solver.solve(&mut pool, &[], goal, &[0; 8]);
    assert_eq!(
        answer,
        Answer::Unknown("the query is too large for the SAT solver")
    );
}

#[test]
fn a_pool_is_not_mistaken_for_another() {
    let mut solver = Solver::default();
    for wanted in 1..20 {
        let mut pool = Pool::new();
        let (byte, k) = (pool.input(0), pool.constant(8, wanted));
        let goal = pool.eq(byte, k);
        let answer = solver.solve(&mut pool, &[], goal, &[0]);
        assert_eq!(answer, Answer::Sat(vec![(0, wanted as u8)]));
    }
}

/// Queries that concern one byte or two do not need the SAT solver; how long they take is told.
#[allow(clippy::print_stderr)]
#[test]
fn small_queries_need_no_sat_solver() {
    let mut pool = Pool::new();
    let mut times = Vec::new();
    let current = [b'5'; 64];
    let mut path = Vec::new();
    let mut solver = Solver::default();
    for index in 0..63 {
        let (byte, next) = (pool.input(index), pool.input(index + 1));
        path.push(pool.within(byte, b'0'.into(), b'9'.into()));
        let (wide, next) = (pool.zext(byte, 32), pool.zext(next, 32));
        let (ten, k) = (pool.constant(32, 10), pool.constant(32, 48 * 11));
        let tens = pool.mul(wide, ten);
        let sum = pool.add(tens, next);
        let number = pool.sub(sum, k);
        for wanted in [42, 7, 1000] {
            let k = pool.constant(32, wanted);
            for goal in [pool.eq(number, k), pool.eq(wide, k)] {
                let start = Instant::now();
                let answer = solver.solve(&mut pool, &path, goal, &current);
                times.push(start.elapsed());
                assert!(!matches!(answer, Answer::Unknown(_)), "{answer:?}");
            }
        }
    }
    times.sort();
    let median = times[times.len() / 2];
    eprintln!(
        "{} queries, median {median:?}, 90 % {:?}, slowest {:?}; {:?}",
        times.len(),
        times[times.len() * 9 / 10],
        times[times.len() - 1],
        solver.statistics()
    );
    let statistics = solver.statistics();
    assert!(
        statistics.blasting * 10 <= statistics.queries,
        "{statistics:?}"
    );
}
