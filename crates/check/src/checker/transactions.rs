//! Transactions: what is logged twice or in two at a time, and what is not persistent when they
//! end.
//!
//! `duplicate-log`, `fresh-log`, `cross-tx-overlap`, `tx-not-persisted`. libpmemobj is silent when
//! it is asked to log what it has logged already, so repetition is judged at its functions'
//! entries; what it really logs comes as a request.

use super::*;

impl Checker {
    pub(super) fn tx_begin(&mut self, at: usize, number: u64) {
        if self.transactions.begin(number, self.moment()) {
            self.counts.transactions += 1;
        }
        if !self.threads[at].transactions.contains(&number) {
            self.threads[at].transactions.push(number);
        }
    }

    pub(super) fn tx_end(&mut self, at: usize, pc: TargetAddr, context: ContextId, number: u64) {
        let Some(mut ended) = self.transactions.end(number) else {
            return;
        };
        let thread = self.threads[at].id;
        for state in &mut self.threads {
            state.transactions.retain(|open| *open != number);
        }
        let left = self.unpersisted_of(&mut ended);
        self.transactions.recycle(ended);
        if left.is_empty() {
            return;
        }
        let end = self.tag(at, pc, context);
        for (range, status) in left {
            // What the library keeps out of transactions is not the transaction's to persist.
            if self.tx_ignored.covers(range) {
                continue;
            }
            self.reported_in_tx.insert(status.tag);
            let next_fence = self.sites.next_fence(status.tag);
            self.collector.report(
                BuiltIn::TxNotPersisted,
                status.tag,
                Tag(0),
                range.len(),
                || {
                    let message = format!(
                        "{} stored in a transaction and not persistent when it ends",
                        bytes_are(range.len())
                    );
                    let mut events = not_persistent(range, &status, next_fence);
                    let text = "the transaction ends here";
                    events.push(RawEvent::new(Role::TxEnd, text, end).by(thread));
                    (message, events)
                },
            );
        }
    }

    /// What a transaction has stored and not made persistent, in address order.
    fn unpersisted_of(&mut self, ended: &mut Transaction) -> Vec<(ByteRange, Status)> {
        let begun = ended.begun;
        let is_persisted =
            |line: ByteRange| self.model.is_line_persisted_since(line.start(), begun);
        if ended.touched.lines().all(is_persisted) {
            return Vec::new();
        }
        let mut left: Vec<(ByteRange, Status)> = Vec::new();
        for line in ended.touched.take() {
            if !self.tx_ignored.covers(line) {
                let unfinished = self.model.unpersisted_in(line);
                left.extend(unfinished.filter(|(_, s)| s.stored > begun));
            }
        }
        left
    }

    /// `asked`: by a call or annotation, which is judged for repetition.
    #[inline]
    pub(super) fn tx_add(
        &mut self,
        at: usize,
        tag: Tag,
        number: u64,
        addr: TargetAddr,
        len: u64,
        asked: bool,
    ) {
        if !self.duties.logging {
            return;
        }
        let thread = self.threads[at].id;
        match self.whole(thread, addr, len) {
            Some(range) => self.tx_add_part(at, tag, number, (range, addr), asked),
            None => {
                for part in self.parts(thread, addr, len) {
                    self.tx_add_part(at, tag, number, part, asked);
                }
            }
        }
    }

    #[inline]
    fn tx_add_part(&mut self, at: usize, tag: Tag, number: u64, part: Part, asked: bool) {
        let state = &self.threads[at];
        let (thread, allocated, stopped) = (state.id, state.allocates, state.stopped);
        if !allocated
            && let Some((range, logged)) = self.transactions.logged_elsewhere(number, part.0)
        {
            self.overlap(thread, tag, logged, (range, part.1));
        }
        if (asked || !self.sees_library_calls && !allocated) && !stopped {
            self.judge_log(thread, number, tag, part);
        }
        if let Some(transaction) = self.transactions.get_mut(number) {
            let value = Logged {
                allocated,
                tag,
                thread,
            };
            transaction.logged.insert_new(part.0, value);
        }
    }

    pub(super) fn overlap(&mut self, thread: ThreadId, tag: Tag, logged: Logged, part: Part) {
        let now = self.moment();
        let size = part.0.len();
        self.collector
            .report(BuiltIn::CrossTxOverlap, tag, logged.tag, size, || {
                let message = format!(
                    "{} in two transactions that are open at the same time",
                    bytes_are(size)
                );
                let first = RawEvent::new(Role::Log, "logged here", tag);
                let text = "and in another open transaction here";
                let other = RawEvent::new(Role::EarlierLog, text, logged.tag).by(logged.thread);
                (
                    message,
                    vec![first.by(thread).at(now).on(part.0, part.1), other],
                )
            });
    }

    /// Is all of the range in the transaction already?
    pub(super) fn judge_log(&mut self, thread: ThreadId, number: u64, tag: Tag, part: Part) {
        let Some(transaction) = self.transactions.get(number) else {
            return;
        };
        if part.0.is_empty() || !transaction.logged.covers(part.0) {
            return;
        }
        let known: Vec<Logged> = transaction
            .logged
            .overlapping(part.0)
            .map(|(_, logged)| logged)
            .collect();
        let fresh = known.iter().any(|logged| logged.allocated);
        let earlier = known.iter().find(|logged| logged.allocated == fresh);
        let Some(earlier) = earlier.copied() else {
            return;
        };
        if let Some(transaction) = self.transactions.get_mut(number) {
            // Asked for once more, what was allocated counts as logged.
            let new: Vec<_> = transaction.logged.overlapping(part.0).collect();
            let new = new.into_iter().filter(|(_, logged)| logged.allocated);
            for (range, _) in new {
                let asked = Logged {
                    allocated: false,
                    tag,
                    thread,
                };
                transaction.logged.insert(range, asked);
            }
        }
        let now = self.moment();
        let size = part.0.len();
        let log = |text: &str| {
            RawEvent::new(Role::Log, text, tag)
                .by(thread)
                .at(now)
                .on(part.0, part.1)
        };
        match fresh {
            true => self
                .collector
                .report(BuiltIn::FreshLog, tag, Tag(0), size, || {
                    let message = format!(
                        "{} logged that the same transaction has allocated",
                        bytes_are(size)
                    );
                    let alloc = RawEvent::new(Role::Alloc, "allocated here", earlier.tag);
                    (message, vec![log("logged here"), alloc])
                }),
            false => self
                .collector
                .report(BuiltIn::DuplicateLog, tag, Tag(0), size, || {
                    let message =
                        format!("{} logged again in the same transaction", bytes_are(size));
                    let first = RawEvent::new(Role::EarlierLog, "logged here first", earlier.tag);
                    (message, vec![log("logged again here"), first])
                }),
        }
    }

    pub(super) fn tx_remove(&mut self, thread: ThreadId, number: u64, addr: TargetAddr, len: u64) {
        if !self.duties.logging {
            return;
        }
        if let Some(range) = self.whole(thread, addr, len) {
            if let Some(transaction) = self.transactions.get_mut(number) {
                transaction.logged.remove(range);
            }
            return;
        }
        let parts = self.parts(thread, addr, len);
        if let Some(transaction) = self.transactions.get_mut(number) {
            for (range, _) in parts {
                transaction.logged.remove(range);
            }
        }
    }

    #[inline(never)]
    pub(super) fn library_call(
        &mut self,
        thread: ThreadId,
        pc: TargetAddr,
        context: ContextId,
        function: u32,
        args: [u64; 5],
    ) {
        if function as usize >= THREAD_FUNCTIONS_FROM {
            return;
        }
        self.sees_library_calls = true;
        let at = self.thread(thread);
        let Some(name) = LIBRARY_FUNCTIONS.get(function as usize) else {
            return;
        };
        let state = &mut self.threads[at];
        state.allocates = false;
        let (addr, len) = match *name {
            "pmemobj_tx_begin" => {
                state.pool = TargetAddr(args[0]);
                return;
            }
            // PMEMoid by value: pool, offset; then offset in the object, size.
            "pmemobj_tx_add_range" | "pmemobj_tx_xadd_range" => {
                let offset = args[1].wrapping_add(args[2]);
                (state.pool.0.wrapping_add(offset), args[3])
            }
            "pmemobj_tx_add_range_direct" | "pmemobj_tx_xadd_range_direct" => (args[0], args[1]),
            name => {
                state.allocates = name.contains("alloc") || name.contains("dup");
                return;
            }
        };
        if state.stopped {
            return;
        }
        // Only judged here: the request that follows says what the library really logs.
        let tag = self.tag(at, pc, context);
        for part in self.parts(thread, TargetAddr(addr), len) {
            self.judge_log(thread, own_number(thread), tag, part);
        }
    }
}
