//! What a check is to look for.

use brownout_findings::rules::RuleSet;

/// What to look for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Persistence domain and the like. Default: x86.
    pub model: brownout_model::Config,
    /// Which rules are on. Default: all but the opt-in ones.
    pub rules: RuleSet,
    /// Every store must be in a transaction. Default: no, most programs have none.
    pub tx_only: bool,
    /// Look at what threads could read of each other too early. Default: no: that takes a recording
    /// with loads and locks.
    pub threads: bool,
    /// Tell which places in the code write back and fence how much, in the statistics. Default: no:
    /// their stacks take time to name.
    pub efforts: bool,
}
