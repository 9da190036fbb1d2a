//! What happens when Brownout itself is wrong: say so, say what to report, exit 70.

use std::any::Any;
use std::ffi::OsString;
use std::panic::{self, AssertUnwindSafe};

use crate::exit;
use crate::terminal::{message, quote};

/// Runs `work`; a panic in it is reported as a bug and becomes exit code 70.
pub fn guard(work: impl FnOnce() -> u8) -> u8 {
    panic::set_hook(Box::new(|info| {
        message(&report(
            &text(info.payload()),
            &info
                .location()
                .map_or("an unknown place".into(), ToString::to_string),
            &std::env::args_os().collect::<Vec<_>>(),
        ));
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            message(&std::backtrace::Backtrace::force_capture().to_string());
        }
    }));
    // The state that `work` leaves behind is not used again.
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or(exit::BUG)
}

fn text(payload: &dyn Any) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

fn report(what: &str, place: &str, args: &[OsString]) -> String {
    let command: Vec<String> = args.iter().map(quote).collect();
    format!(
        "internal error: {what} (at {place})\n\
         This is a bug in Brownout, not in your program. Please report it with\n\
         \x20 version: {}\n\
         \x20 command: {}\n\
         \x20 backtrace: run the command again with RUST_BACKTRACE=1 set",
        env!("CARGO_PKG_VERSION"),
        command.join(" "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_exit_code_70() {
        assert_eq!(guard(|| panic!("on purpose: {}", 1)), exit::BUG);
        assert_eq!(guard(|| 7), 7);
        drop(panic::take_hook());
    }

    #[test]
    fn the_report_says_what_is_needed() {
        let args = ["brownout".into(), "run".into(), "--".into(), "a b".into()];
        let report = report("boom", "x.rs:1:2", &args);
        assert!(report.contains("boom (at x.rs:1:2)"), "{report}");
        assert!(report.contains(env!("CARGO_PKG_VERSION")));
        assert!(report.contains("brownout run -- 'a b'"), "{report}");
        assert!(report.contains("RUST_BACKTRACE=1"));
    }
}
