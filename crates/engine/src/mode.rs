//! What was asked for: the mode of a run, which does not change while a program is loaded.

use brownout_abi as abi;

/// What was asked for.
#[derive(Clone, Copy)]
pub struct Mode {
    /// [`abi::MODE_RECORD`].
    pub record: bool,
    /// [`abi::MODE_LOADS`].
    pub loads: bool,
    /// [`abi::MODE_VALUES`].
    pub values: bool,
    /// [`abi::MODE_DETERMINISTIC`].
    pub deterministic: bool,
    /// [`abi::MODE_EXECUTE_FLUSHES`].
    pub execute_flushes: bool,
    /// [`abi::MODE_LEAN`].
    pub lean: bool,
    /// [`abi::MODE_BOUNDARIES`].
    pub boundaries: bool,
    /// [`abi::MODE_LINE_INPUT`].
    pub line_input: bool,
    /// [`abi::MODE_NAMES`].
    pub names: bool,
    /// [`abi::MODE_EDGES`].
    pub edges: bool,
    /// [`abi::MODE_INTERPRET`].
    pub interpret: bool,
    /// [`abi::MODE_COMPARISONS`].
    pub comparisons: bool,
    /// [`abi::MODE_NAMED_INPUT`].
    pub named_input: bool,
    /// [`abi::MODE_CLIENT`].
    pub client: bool,
    /// [`abi::MODE_SCHEDULE`].
    pub schedule: bool,
    /// [`abi::MODE_THREADS`].
    pub threads: bool,
    /// [`abi::MODE_FOLLOW`].
    pub follow: bool,
    /// [`abi::MODE_CAPTURE`].
    pub capture: bool,
    /// [`abi::MODE_PLAIN_CPU`].
    pub plain_cpu: bool,
    /// [`abi::MODE_OPENS`].
    pub opens: bool,
    /// What the program must not see of the processor.
    pub hidden: abi::cpu::Features,
    /// What it cannot use: hidden, or lacking.
    pub missing: abi::cpu::Features,
}

static mut MODE: Mode = Mode {
    record: false,
    loads: false,
    values: false,
    deterministic: false,
    execute_flushes: false,
    lean: false,
    boundaries: false,
    line_input: false,
    names: false,
    edges: false,
    interpret: false,
    comparisons: false,
    named_input: false,
    client: false,
    schedule: false,
    threads: false,
    follow: false,
    capture: false,
    plain_cpu: false,
    opens: false,
    hidden: abi::cpu::Features::NONE,
    missing: abi::cpu::Features::NONE,
};

/// Takes over what the control block says. Called once, by the first thread.
pub fn init(control: &abi::Control) {
    let has = |bit| control.mode & bit != 0;
    // SAFETY: the only thread.
    unsafe {
        MODE = Mode {
            record: has(abi::MODE_RECORD),
            loads: has(abi::MODE_LOADS),
            values: has(abi::MODE_VALUES),
            deterministic: has(abi::MODE_DETERMINISTIC),
            execute_flushes: has(abi::MODE_EXECUTE_FLUSHES),
            lean: has(abi::MODE_LEAN),
            boundaries: has(abi::MODE_BOUNDARIES),
            line_input: has(abi::MODE_LINE_INPUT),
            names: has(abi::MODE_NAMES),
            edges: has(abi::MODE_EDGES),
            interpret: has(abi::MODE_INTERPRET),
            comparisons: has(abi::MODE_COMPARISONS),
            named_input: has(abi::MODE_NAMED_INPUT),
            client: has(abi::MODE_CLIENT),
            schedule: has(abi::MODE_SCHEDULE),
            threads: has(abi::MODE_THREADS),
            follow: has(abi::MODE_FOLLOW),
            capture: has(abi::MODE_CAPTURE),
            plain_cpu: has(abi::MODE_PLAIN_CPU),
            opens: has(abi::MODE_OPENS),
            hidden: abi::cpu::Features(control.cpu_hidden),
            missing: abi::cpu::Features(control.cpu_hidden | control.cpu_lacking),
        };
    }
}

/// What was asked for.
#[inline(always)]
pub fn mode() -> Mode {
    // SAFETY: written once in `init`, before any other thread exists.
    unsafe { MODE }
}
