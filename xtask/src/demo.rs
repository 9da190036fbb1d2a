//! `cargo xtask demo`: for someone who sees Brownout for the first time.
//!
//! Grows with each capability. Today: records a libpmemobj example and shows what it did to
//! persistent memory.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use brownout_tests::{layout, tool};

use crate::{build, setup, shell};

/// A few inserts; one of them splits nothing, so the transaction shown is short.
const COMMANDS: &str = "i 1\ni 2\ni 3\np\nq\n";

/// Events shown of the transaction, half of them from its begin and half from its end.
const EXCERPT_LINES: usize = 36;

/// pmemcheck's requests around a transaction, by their offset from the base code. The others that
/// libpmemobj makes are left out of the excerpt.
const START_TX: u32 = 18;
const END_TX: u32 = 20;
/// Runs it.
pub fn demo() -> Result<()> {
    say("Checking that the needed Debian packages are here (installing them if we may) …");
    setup::setup()?;
    say("Building brownout and the example program …");
    build::build()?;
    tool::expect_built()?;

    let folder = layout::target().join("demo");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let (pool, trace, input) = (
        folder.join("map.pool"),
        folder.join("map.bwt"),
        folder.join("commands"),
    );
    for old in [&pool, &trace] {
        if old.exists() {
            fs::remove_file(old)?;
        }
    }
    fs::write(&input, COMMANDS)?;
    let brownout = layout::brownout();

    heading("The program");
    say(
        "mapcli is one of the examples that come with libpmemobj: a B-tree whose nodes live in a file that \
         is mapped into memory. On a machine with persistent memory that file *is* the memory: a store \
         survives a power failure, but only once its cache line has been written back. We start it unchanged \
         and let it insert the keys 1, 2 and 3.",
    );

    heading("Recording");
    let mut record = Command::new(&brownout);
    record
        .arg("record")
        .arg("-o")
        .arg(&trace)
        .arg("--verify")
        .arg("--stdin")
        .arg(&input)
        .arg("--");
    record
        .arg(layout::examples().join("mapcli"))
        .arg("btree")
        .arg(&pool);
    show(&record);
    shell::run(&mut record)?;
    println!();
    say(
        "The program believes that it runs on real persistent memory. --verify has just proved that no store was \
         missed: the file as it was at first, plus all recorded stores, gives the file as it is now, byte \
         for byte.",
    );

    heading("What it did, in numbers");
    let mut stat = Command::new(&brownout);
    stat.args(["trace", "stat"]).arg(&trace);
    show(&stat);
    shell::run(&mut stat)?;
    println!();
    say(
        "store: a write that is still in the cache.  nt_store: one that goes past the cache.  clwb / clflushopt: asks for a cache line to be written back.  \
         sfence: waits until that has happened; only now would a power failure leave the data intact.  \
         pmemcheck: what libpmemobj itself announces, such as the begin and the end of a transaction.",
    );

    heading("One transaction, event by event");
    let mut dump = Command::new(&brownout);
    dump.args(["trace", "dump", "--stacks"]).arg(&trace);
    show(&dump);
    excerpt(&mut dump)?;
    say(
        "Read it from top to bottom. Each line is one event: its number, the thread, what happened, where in the \
         pool file, and the call stack that led there (innermost first). libpmemobj first copies what will change \
         into its undo log and makes that copy durable (nt_store, sfence); only then does btree_map.c change the \
         node; at the end the node is flushed and the log is invalidated. If the power fails anywhere in between, \
         opening the pool again rolls back to the state before the insert. Whether a program always gets \
         this order right is what Brownout's analyses will check; they are being built on this stream of events.",
    );

    heading("Your own program");
    println!(
        "  {0} record -o run.bwt -- YOUR-PROGRAM ARGS     (add --pm 'GLOB' if it maps files without libpmem)\n  \
         {0} trace stat run.bwt\n  {0} trace dump run.bwt --stacks | less\n",
        brownout.display()
    );
    Ok(())
}

/// Shows the last insert's transaction, from libpmemobj's announcement of its begin to that of its end.
fn excerpt(dump: &mut Command) -> Result<()> {
    let output = dump
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run trace dump")?;
    if !output.status.success() {
        bail!("trace dump ended with {}", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !is_definition(line) && request(line).is_none_or(is_shown))
        .collect();
    let from = lines
        .iter()
        .rposition(|line| request(line) == Some(START_TX) && line.contains("btree_map_insert"))
        .context("the recording shows no transaction of an insert")?;
    let mut depth = 0;
    let length = lines[from..]
        .iter()
        .position(|line| {
            depth += match request(line) {
                Some(START_TX) => 1,
                Some(END_TX) => -1,
                _ => 0,
            };
            depth == 0
        })
        .context("the transaction has no end")?;
    let transaction = &lines[from..=from + length];
    let hidden = transaction.len().saturating_sub(EXCERPT_LINES);
    for (number, line) in transaction.iter().enumerate() {
        if number < EXCERPT_LINES / 2 || number >= EXCERPT_LINES / 2 + hidden {
            println!("{}", readable(line));
        } else if number == EXCERPT_LINES / 2 {
            println!("  … {hidden} more events …");
        }
    }
    println!();
    Ok(())
}

/// Events that only define numbers for others.
fn is_definition(line: &str) -> bool {
    matches!(line.split_whitespace().nth(2), Some("context" | "module"))
}

fn is_shown(request: u32) -> bool {
    request == START_TX || request == END_TX
}

/// The number of a pmemcheck request, if the line is one.
fn request(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once("pmemcheck     request ")?;
    rest.split_once(':')?.0.parse().ok()
}

/// One event of the dump on one or two short lines: requests by name, source files without folders,
/// the stack below the event and only as far as `main`.
fn readable(line: &str) -> String {
    let (event, stack) = match line.split_once("  @0x") {
        Some((event, rest)) => (
            event,
            rest.split_once("  ").map_or("", |(_, frames)| frames),
        ),
        None => (line, ""),
    };
    // The address in the program says nothing that the place in the file does not.
    let event = event.split_once("  [0x").map_or(event, |(event, _)| event);
    let event = match (request(line), event.split_once("request ")) {
        (Some(START_TX), Some((before, _))) => format!("{before}transaction begins"),
        (Some(END_TX), Some((before, _))) => format!("{before}transaction ends"),
        _ => event.to_owned(),
    };
    let mut frames: Vec<String> = Vec::new();
    for frame in stack.split(" < ").filter(|frame| !frame.is_empty()) {
        let short = match (frame.split_once(" ("), frame.split_once(".so")) {
            (Some((function, place)), _) => {
                format!("{function} ({}", place.rsplit('/').next().unwrap_or(place))
            }
            // A stripped library shows only offsets: its name once is enough.
            (None, Some((library, _))) => format!("{library} …"),
            (None, None) => frame.split('+').next().unwrap_or(frame).to_owned(),
        };
        if frames.last() != Some(&short) {
            frames.push(short);
        }
        if frame.starts_with("main ") {
            break;
        }
    }
    if frames.is_empty() {
        return event;
    }
    format!("{}\n{:>28}{}", event.trim_end(), "", frames.join(" < "))
}

fn heading(text: &str) {
    println!(
        "\n── {text} {}\n",
        "─".repeat(76usize.saturating_sub(text.chars().count()))
    );
}

/// A paragraph, wrapped at 80 columns.
fn say(text: &str) {
    let mut column = 0;
    let mut out = String::new();
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > 80 {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    println!("{out}\n");
}

fn show(command: &Command) {
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| {
            let word = word.to_string_lossy();
            let short = word.strip_prefix(&*layout::workspace().to_string_lossy());
            short.map_or(word.to_string(), |rest| {
                rest.trim_start_matches('/').to_owned()
            })
        })
        .collect();
    println!("$ {}\n", words.join(" "));
}
