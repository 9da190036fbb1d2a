//! `--compat pmemcheck`: what becomes of the options of the Valgrind tool pmemcheck.
//!
//! Guarantee: each option either does here what it does there, or a sentence says that it has no
//! effect and why. An option that asks for what Brownout does anyway is accepted without a word.
//! `--tx-only` is not here: both tools have it.
//!
//! Deviation: defaults stay Brownout's. Superfluous flushes are reported unless `--flush-check=no`
//! is given, and overwritten stores only with `--mult-stores=yes`, as in pmemcheck.

use std::path::PathBuf;

use brownout_findings::BuiltIn;

use crate::cli::{PmemcheckArgs, RuleEdit, Selection};

/// The rule for what `--mult-stores` looks for.
const OVERWRITES: BuiltIn = BuiltIn::OverwrittenUnpersisted;
/// The rules for what `--flush-check` looks for.
const FLUSHES: [BuiltIn; 3] = [
    BuiltIn::CleanFlush,
    BuiltIn::DoubleFlush,
    BuiltIn::OversizedFlush,
];

/// pmemcheck's options in Brownout's terms.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Translated {
    /// Rules to switch.
    pub rules: Vec<RuleEdit>,
    /// Where the report goes.
    pub output: Option<PathBuf>,
    /// So many frames of a stack.
    pub frames_max: Option<usize>,
    /// Suppressions stand behind the report.
    pub print_suppressions: bool,
    /// What has no effect, one sentence each, without final stop.
    pub notes: Vec<String>,
}

/// Translates what was given.
pub fn translate(args: PmemcheckArgs) -> Translated {
    let PmemcheckArgs {
        mult_stores,
        indiff,
        log_stores,
        log_stores_stacktraces,
        log_stores_stacktraces_depth,
        log_file,
        flush_check,
        flush_align,
        isa_rec,
        num_callers,
        print_suppressions,
        error_summary,
        print_summary,
        expect_fence_after_clflush,
    } = args;
    let mut out = Translated::default();
    let mut switch = |rules: &[BuiltIn], on: Option<bool>| {
        let edit = match on {
            None => return,
            Some(true) => RuleEdit::Enable,
            Some(false) => RuleEdit::Disable,
        };
        let rules = rules.iter().map(|rule| edit(Selection::One(*rule)));
        out.rules.extend(rules);
    };
    switch(&[OVERWRITES], mult_stores);
    switch(&FLUSHES, flush_check);
    out.output = log_file;
    out.frames_max = num_callers;
    out.print_suppressions = print_suppressions;

    let mut unless = |harmless: bool, option: &str, why: &str| {
        if !harmless {
            out.notes.push(format!("{option} has no effect: {why}"));
        }
    };
    unless(
        matches!(indiff, None | Some(0)),
        "--indiff",
        "overwritten stores are reported however far apart they are",
    );
    let log = "check writes no store log; 'brownout record --pmemcheck-log FILE' does";
    unless(log_stores != Some(true), "--log-stores=yes", log);
    unless(
        log_stores_stacktraces != Some(true),
        "--log-stores-stacktraces=yes",
        log,
    );
    unless(
        log_stores_stacktraces_depth.is_none(),
        "--log-stores-stacktraces-depth",
        log,
    );
    unless(
        flush_align != Some(false),
        "--flush-align=no",
        "the processor writes back whole cache lines, and so does the model",
    );
    unless(
        isa_rec != Some(false),
        "--isa-rec=no",
        "flush and fence instructions are always seen",
    );
    unless(
        error_summary != Some(false),
        "--error-summary=no",
        "the report always ends with its summary",
    );
    unless(
        print_summary != Some(false),
        "--print-summary=no",
        "the report always ends with its summary",
    );
    unless(
        expect_fence_after_clflush != Some(true),
        "--expect-fence-after-clflush=yes",
        "on x86 clflush completes without a fence",
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_with_a_meaning_are_taken_over() {
        let translated = translate(PmemcheckArgs {
            mult_stores: Some(true),
            flush_check: Some(false),
            log_file: Some("x.log".into()),
            ..PmemcheckArgs::default()
        });
        let mut rules = vec![RuleEdit::Enable(Selection::One(OVERWRITES))];
        rules.extend(FLUSHES.map(|rule| RuleEdit::Disable(Selection::One(rule))));
        assert_eq!(translated.rules, rules);
        assert_eq!(translated.output, Some("x.log".into()));
        assert_eq!(translated.notes, [] as [&str; 0]);
    }

    #[test]
    fn options_without_effect_are_named() {
        let translated = translate(PmemcheckArgs {
            indiff: Some(5),
            log_stores: Some(true),
            log_stores_stacktraces: Some(true),
            log_stores_stacktraces_depth: Some(3),
            flush_align: Some(false),
            isa_rec: Some(false),
            error_summary: Some(false),
            print_summary: Some(false),
            expect_fence_after_clflush: Some(true),
            ..PmemcheckArgs::default()
        });
        assert_eq!(translated.notes.len(), 9);
        assert_eq!(translated.rules, []);
    }

    #[test]
    fn what_holds_anyway_needs_no_words() {
        let translated = translate(PmemcheckArgs {
            indiff: Some(0),
            log_stores: Some(false),
            flush_align: Some(true),
            isa_rec: Some(true),
            error_summary: Some(true),
            print_summary: Some(true),
            expect_fence_after_clflush: Some(false),
            ..PmemcheckArgs::default()
        });
        assert_eq!(translated, Translated::default());
    }
}
