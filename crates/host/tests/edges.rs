//! Edge coverage: which branches a program takes.

mod support;

use brownout_host::{LaunchConfig, Session, StopAt, record};
use std::fs::File;
use std::path::Path;
use support::{Folder, Keep};

/// Takes a branch for each letter of its input, and a function by a pointer for some.
const LETTERS: &str = r#"
static volatile int sink;
static void one(void) { sink += 1; }
static void two(void) { sink += 2; }
static void (*volatile table[2])(void) = {one, two};
static void *other(void *n) { for (int i = 0; i < 300; i++) if (sink != -1) sink++; return n; }
#include <pthread.h>
int main(int argc, char **argv) {
    volatile uint64_t *pm = map(argv[1]);
    char c;
    while (read(0, &c, 1) == 1) switch (c) {
    case 'a': sink += 10; break;
    case 'b': sink += 20; break;
    case 'c': for (int i = 0; i < 1000; i++) sink++; break;
    case '1': table[0](); break;
    case '2': table[1](); break;
    case 't': { pthread_t t; pthread_create(&t, 0, other, 0); pthread_join(t, 0); break; }
    case 'f': if (fork() == 0) { table[1](); _exit(0); } wait(0); break;
    }
    pm[0] = sink;
    return 0;
}
"#;

fn config(folder: &Folder, program: &Path, input: &str) -> LaunchConfig {
    folder.pool();
    let stdin = folder.file("input", input);
    LaunchConfig {
        deterministic: true,
        edges: true,
        stdin: Some(File::open(stdin).expect("there")),
        ..folder.launch(program, [folder.join("pool")])
    }
}

fn edges(folder: &Folder, program: &Path, input: &str) -> Box<[u8]> {
    let config = config(folder, program, input);
    let outcome = record(&config, &mut Keep::default()).expect("it can be launched");
    outcome.edges.expect("asked for")
}

fn taken(edges: &[u8]) -> usize {
    edges.iter().filter(|n| **n != 0).count()
}

/// How many edges only `b` has.
fn new(a: &[u8], b: &[u8]) -> usize {
    a.iter()
        .zip(b)
        .filter(|(a, b)| **a == 0 && **b != 0)
        .count()
}

#[test]
fn the_same_input_takes_the_same_edges() {
    let folder = Folder::new();
    let program = folder.program(LETTERS);
    let one = edges(&folder, &program, "abc12");
    assert!(taken(&one) > 100, "{} edges", taken(&one));
    assert_eq!(one, edges(&folder, &program, "abc12"));
}

#[test]
fn another_way_through_the_program_has_edges_of_its_own() {
    let folder = Folder::new();
    let program = folder.program(LETTERS);
    let empty = edges(&folder, &program, "");
    for input in ["a", "b", "1", "2", "t", "f"] {
        let with = edges(&folder, &program, input);
        assert!(new(&empty, &with) > 0, "{input}");
    }
    // The same ways, more often: nothing new.
    let (twice, often) = (
        edges(&folder, &program, "aa"),
        edges(&folder, &program, "aaaaaa"),
    );
    assert_eq!(new(&twice, &often), 0);
    // Which function a pointer leads to.
    let (one, two) = (edges(&folder, &program, "1"), edges(&folder, &program, "2"));
    assert!(new(&one, &two) > 0 && new(&two, &one) > 0);
}

#[test]
fn runs_of_a_session_take_the_edges_that_launches_do() {
    let folder = Folder::new();
    let program = folder.program(LETTERS);
    let opened = config(&folder, &program, "");
    let mut session = Session::open(&opened, StopAt::Input).expect("it can be kept");
    for input in ["a", "2", "cab", "a"] {
        // In place, because the kept program has the file open.
        std::fs::write(folder.join("input"), input).expect("writable");
        folder.pool();
        let run = session
            .run(&opened, &mut Keep::default())
            .expect("it can be run");
        let taken = run.edges.expect("asked for");
        assert!(taken == edges(&folder, &program, input), "{input}");
    }
}

#[test]
fn nothing_is_noted_unasked() {
    let folder = Folder::new();
    let program = folder.program(LETTERS);
    let config = LaunchConfig {
        edges: false,
        ..config(&folder, &program, "a")
    };
    let outcome = record(&config, &mut Keep::default()).expect("it can be launched");
    assert_eq!(outcome.edges, None);
}
