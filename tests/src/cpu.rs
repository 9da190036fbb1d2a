//! What this machine's processor has, less what `BROWNOUT_HIDE_CPU` hides.
//!
//! The tool believes the variable, and so do the tests: run with it, they do what they would do on
//! a processor that lacks these features. `cargo xtask test` runs the suites that depend on the
//! processor once more for each of [`MASKS`].

use std::env;
use std::fs;
use std::sync::OnceLock;

use brownout_abi::cpu::{Feature, Features, HIDE_VARIABLE};

/// What is hidden in turn, each from one more run of the suites that depend on the processor.
///
/// The last leaves `clflush` only, as on the oldest processors that the tool supports.
pub const MASKS: [&str; 4] = ["avx512", "avx2", "clwb", "clwb,clflushopt"];

/// What the variable hides.
///
/// # Panics
///
/// If it names something that cannot be hidden: a test of another processor than was meant proves
/// nothing.
pub fn hidden() -> Features {
    static HIDDEN: OnceLock<Features> = OnceLock::new();
    *HIDDEN.get_or_init(|| {
        let text = env::var(HIDE_VARIABLE).unwrap_or_default();
        Features::parse(&text).unwrap_or_else(|word| panic!("{HIDE_VARIABLE} cannot hide {word:?}"))
    })
}

/// Whether the processor has the feature with this name in `/proc/cpuinfo`, and it is not hidden.
pub fn has(flag: &str) -> bool {
    has_beside(flag, hidden())
}

/// Whether the processor has it, with other features hidden than the variable says.
pub fn has_beside(flag: &str, hidden: Features) -> bool {
    static FLAGS: OnceLock<Vec<String>> = OnceLock::new();
    let flags = FLAGS.get_or_init(|| {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = info.lines().find(|line| line.starts_with("flags"));
        line.unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    });
    !hides(hidden, flag) && flags.iter().any(|word| word == flag)
}

/// Whether the kernel's name for a feature is one of those hidden.
fn hides(hidden: Features, flag: &str) -> bool {
    let feature = match flag {
        "avx2" | "vaes" | "vpclmulqdq" | "avx_vnni" => Feature::Avx2,
        "clwb" => Feature::Clwb,
        "clflushopt" => Feature::Clflushopt,
        "bmi2" => Feature::Bmi2,
        "erms" | "fsrm" => Feature::Erms,
        "xsavec" => Feature::Xsavec,
        _ if flag.starts_with("avx512") => Feature::Avx512,
        _ => return false,
    };
    hidden.has(feature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_hide_what_they_say() {
        for mask in MASKS {
            let hidden = Features::parse(mask).expect(mask);
            for word in mask.split(',') {
                let flag = if word == "avx512" { "avx512f" } else { word };
                assert!(hides(hidden, flag), "{mask}");
            }
            assert!(!hides(hidden, "sse2") && !hides(hidden, "bmi2"));
        }
        assert!(hides(Features::parse("avx2").expect("exists"), "avx512bw"));
    }

    #[test]
    fn what_the_tool_needs_is_there() {
        assert!(has("bmi2"), "the tool needs BMI2");
    }
}
