//! `cargo xtask bench engine`: what `brownout run` and `brownout record` cost.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use brownout_tests::{Scratch, layout};

use super::common::{Options, Side, Times, geometric_mean, median};

/// What the tool does in the second variant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// `brownout run`
    Run,
    /// `brownout record` of stores with values, flushes and fences
    Record,
}

/// A program to be timed.
struct Case {
    name: &'static str,
    mode: Mode,
    argv: Vec<String>,
    stdin: Option<PathBuf>,
    /// Removed before each run.
    pool: Option<PathBuf>,
    /// `--pm` pattern, for programs that do not use libpmem.
    pm: Option<&'static str>,
    /// What the project promises, from the first design.
    goal: Option<f64>,
}

/// Runs it and prints the table.
pub fn bench(options: &Options) -> Result<()> {
    ensure!(
        !options.quick && !options.memory,
        "--quick and --memory belong to `bench check`"
    );
    let scratch = Scratch::new()?;
    eprintln!("preparing inputs …");
    let cases = options.select(cases(&scratch)?, |case| case.name)?;
    let rounds = options.rounds.unwrap_or(super::common::ROUNDS_DEFAULT);
    let times = super::common::interleave(cases.len(), rounds, |index, side| {
        time(&cases[index], side, &scratch)
    })?;
    println!("{}", table(&cases, &times, rounds));
    options.write_json(cases.iter().map(|case| case.name).zip(&times))
}

fn cases(scratch: &Scratch) -> Result<Vec<Case>> {
    let own = |name: &str| layout::programs().join(name).to_string_lossy().into_owned();
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let case = |name, argv: Vec<String>| Case {
        name,
        mode: Mode::Run,
        argv,
        stdin: None,
        pool: None,
        pm: None,
        goal: None,
    };
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };

    let data = scratch.join("data");
    fs::write(&data, compressible(30 << 20))?;
    let sql = scratch.join("script.sql");
    fs::write(&sql, SQL)?;
    let python = scratch.join("loop.py");
    fs::write(&python, PYTHON)?;
    let source = scratch.join("big.c");
    fs::write(&source, big_c())?;
    let input = scratch.join("commands");
    fs::write(&input, "n 100000\nq\n")?;
    let (hash_pool, map_pool) = (scratch.join("hash.pool"), scratch.join("map.pool"));

    Ok(vec![
        case("dram_hash", vec![own("dram_hash"), "8000000".to_owned()]),
        case(
            "gzip",
            vec!["/usr/bin/gzip".to_owned(), "-c".to_owned(), text(data)],
        ),
        Case {
            stdin: Some(sql),
            ..case("sqlite3", words(&["/usr/bin/sqlite3", ":memory:"]))
        },
        case(
            "python loop",
            vec!["/usr/bin/python3".to_owned(), text(python)],
        ),
        case(
            "cc1 -O2",
            vec![
                cc1()?,
                "-O2".to_owned(),
                "-quiet".to_owned(),
                text(source),
                "-o".to_owned(),
                "/dev/null".to_owned(),
            ],
        ),
        Case {
            mode: Mode::Record,
            pool: Some(hash_pool.clone()),
            pm: Some("*.pool"),
            goal: Some(1.3),
            ..case(
                "PM hash + clwb",
                vec![own("pm_hash"), text(hash_pool), "1000000".to_owned()],
            )
        },
        Case {
            mode: Mode::Record,
            pool: Some(map_pool.clone()),
            stdin: Some(input),
            goal: Some(2.0),
            ..case(
                "mapcli btree, 100,000 inserts",
                vec![
                    text(layout::examples().join("mapcli")),
                    "btree".to_owned(),
                    text(map_pool),
                ],
            )
        },
        case(STARTUP, words(&["/bin/true"])),
    ])
}

const STARTUP: &str = "startup of /bin/true";

/// Starting and ending is so short that it is repeated inside one measurement.
const STARTUP_REPEATS: u32 = 20;

fn time(case: &Case, side: Side, scratch: &Scratch) -> Result<Duration> {
    let repeats = if case.name == STARTUP {
        STARTUP_REPEATS
    } else {
        1
    };
    let mut total = Duration::ZERO;
    for _ in 0..repeats {
        if let Some(pool) = case.pool.as_ref().filter(|pool| pool.exists()) {
            fs::remove_file(pool)?;
        }
        let trace = scratch.join("trace.bwt");
        let mut command = match side {
            Side::Native => Command::new(&case.argv[0]),
            Side::Tool => {
                let mut command = tool_command(case, &trace);
                command.arg(&case.argv[0]);
                command
            }
        };
        command.args(&case.argv[1..]);
        super::common::set_surroundings(&mut command, scratch.path());
        command.stdin(match &case.stdin {
            Some(path) => Stdio::from(fs::File::open(path)?),
            None => Stdio::null(),
        });
        let start = Instant::now();
        let output = command
            .output()
            .with_context(|| format!("cannot run {}", case.name))?;
        total += start.elapsed();
        super::common::expect_success(case.name, side, &output)?;
    }
    Ok(total / repeats)
}

fn tool_command(case: &Case, trace: &Path) -> Command {
    let mut command = Command::new(layout::brownout());
    match case.mode {
        Mode::Run => command.arg("run"),
        Mode::Record => command.arg("record").arg("-o").arg(trace),
    };
    if let Some(pattern) = case.pm {
        command.args(["--pm", pattern]);
    }
    command.arg("--");
    command
}

fn table(cases: &[Case], times: &[Times], rounds: usize) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "Medians of {rounds} rounds, native and tool in turn.\n"
    );
    let _ = writeln!(
        text,
        "| program | command | native s | tool s | ratio | goal |"
    );
    let _ = writeln!(text, "|---|---|---:|---:|---:|---:|");
    let mut of_runs = Vec::new();
    let rows = || cases.iter().zip(times);
    for (case, times) in rows().filter(|(case, _)| case.name != STARTUP) {
        let (native, tool) = (median(&times.native), median(&times.tool));
        let command = match case.mode {
            Mode::Run => "run",
            Mode::Record => "record",
        };
        let goal = case.goal.map_or(String::new(), |goal| format!("{goal:.2}"));
        let ratio = tool / native;
        let _ = writeln!(
            text,
            "| {} | {command} | {native:.3} | {tool:.3} | {ratio:.2} | {goal} |",
            case.name
        );
        if case.mode == Mode::Run {
            of_runs.push(ratio);
        }
    }
    if let Some(mean) = geometric_mean(&of_runs) {
        let _ = writeln!(
            text,
            "| **geometric mean** | run | | | **{mean:.2}** | 1.35 |"
        );
    }
    for (_, times) in rows().filter(|(case, _)| case.name == STARTUP) {
        let (native, tool) = (median(&times.native) * 1e3, median(&times.tool) * 1e3);
        let _ = writeln!(
            text,
            "\nStartup of /bin/true: {native:.1} ms natively, {tool:.1} ms under `run`, {:.1} ms more (goal: 6).",
            tool - native
        );
    }
    text
}

/// The compiler proper, without the driver that starts it.
fn cc1() -> Result<String> {
    let output = Command::new("gcc")
        .arg("-print-prog-name=cc1")
        .output()
        .context("cannot run gcc")?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Text-like bytes: words from a small dictionary, the same on every machine.
pub fn compressible(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let words: Vec<Vec<u8>> = (0..3000)
        .map(|_| {
            (0..2 + next() % 9)
                .map(|_| b'a' + (next() % 26) as u8)
                .collect()
        })
        .collect();
    let mut bytes = Vec::with_capacity(len + 16);
    while bytes.len() < len {
        // Squaring favours low numbers, as real text favours some words.
        let pick = (next() % 3000) * (next() % 3000) / 3000;
        bytes.extend_from_slice(&words[pick as usize]);
        bytes.push(if next() % 12 == 0 { b'\n' } else { b' ' });
    }
    bytes
}

/// About a second of inserts, look-ups, joins and updates.
const SQL: &str = "\
create table t(id integer primary key, k text, v real); create index tk on t(k);
begin;
with recursive c(n) as (select 1 union all select n + 1 from c where n < 400000)
insert into t select n, 'key' || (n * 7919 % 100003), n * 1.5 from c;
commit;
select count(*), sum(v) from t where k > 'key5';
select substr(k, 1, 5) p, count(*), avg(v) from t group by p order by 2 desc, 1 limit 10;
select count(*) from t a join t b on a.k = b.k and a.id < b.id;
update t set v = v + 1 where id % 3 = 0;
select sum(length(k)), max(v) from t order by 1;
";

const PYTHON: &str = "\
import collections
class P:
    def __init__(self, x): self.x = x
    def step(self, n): self.x = (self.x * 31 + n) % 1000003; return self.x
p, c, total = P(1), collections.Counter(), 0
for i in range(3000000):
    total += p.step(i)
    if i % 3 == 0: c[p.x % 97] += 1
print(total, sorted(c.items())[:3], sum(x * x for x in range(1000000)))
";

/// Many functions of ordinary shapes: loops, switches, structs, calls.
fn big_c() -> String {
    let mut text = String::from(
        "typedef unsigned long u; struct s { u a, b; int n; struct s *next; double d[4]; };\nextern u ext(u, struct s *);\n",
    );
    for i in 0..160 {
        let _ = write!(
            text,
            "static u f{i}(u x, struct s *p, int n) {{\n u r = x; int i;\n for (i = 0; i < n; i++) {{ r += p->a * {} ^ (r >> {}); \
             if (r & {}) p->d[i & 3] += r * 0.5; else p->n -= i; }}\n switch (r % 7) {{ case 0: r += ext(r, p); break; case 1: r ^= p->b; \
             break; case 2: r = r * r; break; case 3: while (p && p->n > {}) p = p->next; break; case 4: return r; default: r--; }}\n \
             return r + (p ? p->b : {i});\n}}\nu g{i}(u x, struct s *p) {{ return f{i}(x, p, (int)(x & 15)) + f{i}(x + 1, p->next, {}); }}\n",
            i + 3,
            i % 13 + 1,
            1 << (i % 9),
            i % 50,
            i % 6
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_the_same_every_time() {
        assert_eq!(compressible(1000), compressible(1000));
        assert!(compressible(1000).len() >= 1000);
    }
}
