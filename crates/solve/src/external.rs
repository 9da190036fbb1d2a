//! A solver that is a program of its own, asked by a pipe.
//!
//! # Guarantee
//!
//! The process is gone when `ask` returns: it has ended, or was ended when its time was over.
//! Whatever is not an answer, the absence of the program included, is `Reply::Nothing`.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustc_hash::FxHashMap;

/// What an external solver says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The bytes asked for, in their order.
    Sat(Vec<u8>),
    Unsat,
    Nothing,
}

/// Whether a program answers as z3 does, or why not: in words that follow its name.
///
/// # Errors
///
/// It cannot be run, or what it says is no answer.
pub fn try_solver(program: &Path) -> Result<(), String> {
    let exists = Command::new(program)
        .arg("-version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if let Err(error) = exists {
        let text = error.to_string();
        let why = text.find(" (os error").map_or(&*text, |end| &text[..end]);
        return Err(format!("cannot be run: {why}"));
    }
    let text = "(declare-fun in0 () (_ BitVec 8))\n(assert (= in0 #x2a))\n(check-sat)\n";
    match ask(program, text.to_owned(), &[0], Duration::from_secs(10)) {
        Reply::Sat(bytes) if bytes == [42] => Ok(()),
        _ => Err("does not answer as z3 does when it is called with -in -T:10".to_owned()),
    }
}

/// Asks for values of these inputs under a query that ends with `(check-sat)`.
pub(crate) fn ask(program: &Path, mut text: String, inputs: &[u32], limit: Duration) -> Reply {
    let seconds = limit.as_secs().max(1);
    let child = Command::new(program)
        .arg("-in")
        .arg(format!("-T:{seconds}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return Reply::Nothing;
    };
    let names: Vec<String> = inputs.iter().map(|input| format!("in{input}")).collect();
    text.push_str(&format!("(get-value ({}))\n(exit)\n", names.join(" ")));
    let (Some(mut to), Some(mut from)) = (child.stdin.take(), child.stdout.take()) else {
        return Reply::Nothing;
    };
    let (sender, receiver) = mpsc::channel();
    // It may answer before it has read everything, so both directions need a thread. Each ends when
    // the process does.
    let writer = thread::spawn(move || {
        let _ = to.write_all(text.as_bytes());
    });
    let reader = thread::spawn(move || {
        let mut answer = String::new();
        let _ = from.read_to_string(&mut answer);
        let _ = sender.send(answer);
    });
    let answer = receiver.recv_timeout(limit + Duration::from_millis(500));
    if answer.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    if answer.is_ok() {
        // With the output closed and the process gone, neither thread has anything to wait for.
        let _ = (writer.join(), reader.join());
    }
    match answer {
        Ok(answer) => parse(&answer, inputs),
        Err(_) => Reply::Nothing,
    }
}

fn parse(answer: &str, inputs: &[u32]) -> Reply {
    let answer = answer.trim_start();
    if answer.starts_with("unsat") {
        return Reply::Unsat;
    }
    let Some(values) = answer.strip_prefix("sat") else {
        return Reply::Nothing;
    };
    let mut words = values.split(|c: char| c.is_whitespace() || "()".contains(c));
    let mut found: FxHashMap<u32, u8> = FxHashMap::default();
    while let Some(word) = words.next() {
        let Some(input) = word.strip_prefix("in").and_then(|input| input.parse().ok()) else {
            continue;
        };
        let value = words
            .by_ref()
            .find(|word| !word.is_empty())
            .unwrap_or_default();
        let value = if let Some(value) = value.strip_prefix("#x") {
            u8::from_str_radix(value, 16).ok()
        } else if let Some(value) = value.strip_prefix("#b") {
            u8::from_str_radix(value, 2).ok()
        } else {
            None
        };
        if let Some(value) = value {
            found.insert(input, value);
        }
    }
    match inputs
        .iter()
        .map(|input| found.get(input).copied())
        .collect()
    {
        Some(bytes) => Reply::Sat(bytes),
        None => Reply::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_understood() {
        assert_eq!(parse("unsat\n(error \"no model\")\n", &[1]), Reply::Unsat);
        assert_eq!(parse("unknown\n", &[1]), Reply::Nothing);
        assert_eq!(parse("timeout\n", &[1]), Reply::Nothing);
        assert_eq!(parse("", &[]), Reply::Nothing);
        let answer = "sat\n((in1 #x41)\n (in20 #b00000111))\n";
        assert_eq!(parse(answer, &[20, 1]), Reply::Sat(vec![7, 0x41]));
        assert_eq!(parse(answer, &[2]), Reply::Nothing);
    }
}
