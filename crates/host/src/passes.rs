//! Instrumentation that any command can be given from outside, to try the translator with it.
//!
//! `BROWNOUT_PASSES=edges,interpret` adds these passes of the engine to every program that the tool
//! runs. Nothing that a program can see changes, nor any event.

use crate::LaunchError;
use brownout_abi as abi;

const VARIABLE: &str = "BROWNOUT_PASSES";

/// Each name, and the bit that asks the engine for the pass.
const PASSES: [(&str, u32); 3] = [
    ("comparisons", abi::MODE_COMPARISONS),
    ("edges", abi::MODE_EDGES),
    ("interpret", abi::MODE_INTERPRET),
];

/// The bits for what the variable names.
pub fn from_environment() -> Result<u32, LaunchError> {
    match std::env::var_os(VARIABLE) {
        Some(text) => parse(&text.to_string_lossy()),
        None => Ok(0),
    }
}

fn parse(text: &str) -> Result<u32, LaunchError> {
    let words = text.split(',').map(str::trim).filter(|w| !w.is_empty());
    words.map(bit).try_fold(0, |bits, bit| Ok(bits | bit?))
}

fn bit(word: &str) -> Result<u32, LaunchError> {
    let found = PASSES.iter().find(|(name, _)| *name == word);
    found.map(|(_, bit)| *bit).ok_or_else(|| {
        let names: Vec<&str> = PASSES.iter().map(|(name, _)| *name).collect();
        LaunchError::Variable(format!(
            "{VARIABLE} cannot add '{word}' (what it can: {})",
            names.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_passes() {
        assert_eq!(parse("").unwrap(), 0);
        assert_eq!(
            parse("interpret, edges").unwrap(),
            abi::MODE_EDGES | abi::MODE_INTERPRET
        );
        let error = parse("edges,edgs").unwrap_err().to_string();
        assert!(error.contains("'edgs'"), "{error}");
    }
}
