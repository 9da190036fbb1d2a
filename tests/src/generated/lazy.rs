//! Recovery outcomes by lazy search: a read of an open line branches, everything else does not.
//!
//! What Jaaru does, in its plainest form: after each run of the recovery the last choice that has
//! another option takes it, and the recovery runs again from its beginning.

use std::collections::{BTreeMap, BTreeSet};

use brownout_model::{ByteRange, CrashState, Event, History, Key, LINE_BYTES};

use super::{Ending, Memory, Op, recover};

/// All outcomes of a recovery after a crash here.
pub fn outcomes(crash: &CrashState<'_>, recovery: &[Op]) -> BTreeSet<Ending> {
    let mut outcomes = BTreeSet::new();
    let mut choices: Vec<Choice> = Vec::new();
    loop {
        let mut memory = Searched {
            crash: crash.clone(),
            written: BTreeMap::new(),
            choices: std::mem::take(&mut choices),
            next: 0,
        };
        outcomes.insert(recover(recovery, &mut memory));
        choices = memory.choices;
        while choices
            .last()
            .is_some_and(|choice| choice.taken + 1 == choice.options)
        {
            choices.pop();
        }
        match choices.last_mut() {
            Some(choice) => choice.taken += 1,
            None => return outcomes,
        }
    }
}

/// The same after each event.
pub fn by_position(
    initial: &[u8],
    events: &[Option<Event<'static>>],
    recovery: &[Op],
    config: brownout_model::Config,
) -> Vec<BTreeSet<Ending>> {
    let mut history = History::new(config);
    history.set_initial(Key(0), initial);
    let mut positions = vec![outcomes(&history.crash(), recovery)];
    for event in events {
        if let Some(event) = event {
            history.apply(event).expect("scripts have values");
        }
        positions.push(outcomes(&history.crash(), recovery));
    }
    positions
}

struct Choice {
    taken: usize,
    options: usize,
}

struct Searched<'h> {
    crash: CrashState<'h>,
    written: BTreeMap<u64, u8>,
    choices: Vec<Choice>,
    next: usize,
}

impl Memory for Searched<'_> {
    fn load(&mut self, addr: u64, len: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in ByteRange::new(Key(addr), len).split(LINE_BYTES) {
            let options = self.crash.may_read(part);
            let mut taken = 0;
            if options.len() > 1 {
                if self.next == self.choices.len() {
                    let options = options.len();
                    self.choices.push(Choice { taken, options });
                }
                taken = self.choices[self.next].taken;
                self.next += 1;
            }
            self.crash.choose(&options[taken]);
            bytes.extend(&options[taken].bytes);
        }
        for (addr, byte) in (addr..).zip(&mut bytes) {
            if let Some(written) = self.written.get(&addr) {
                *byte = *written;
            }
        }
        bytes
    }

    fn store(&mut self, addr: u64, bytes: &[u8]) {
        self.written.extend((addr..).zip(bytes.iter().copied()));
    }
}
