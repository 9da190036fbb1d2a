//! Stores: what they overwrite, and whether a transaction may make them.
//!
//! `overwritten-unpersisted`, `tx-unlogged-store`, `store-outside-tx`.
//!
//! A range and where the program has it are two arguments here, not one pair: a pair would be put
//! together in memory and read back at once, which the processor has to wait for.

use super::*;

impl Checker {
    #[inline]
    pub(super) fn store(
        &mut self,
        thread: ThreadId,
        pc: TargetAddr,
        context: ContextId,
        access: &Access<'_>,
        kind: StoreKind,
    ) {
        let at = self.thread(thread);
        self.finish_run(at);
        self.counts.stores += 1;
        let tag = self.tag(at, pc, context);
        let len = u64::from(access.size);
        match self.whole(thread, access.addr, len) {
            Some(range) => self.store_part(thread, at, tag, range, access.addr, kind),
            None => {
                for (range, addr) in self.parts_of_access(thread, access.addr, len) {
                    self.store_part(thread, at, tag, range, addr, kind);
                }
            }
        }
    }

    #[inline(always)]
    pub(super) fn store_part(
        &mut self,
        thread: ThreadId,
        at: usize,
        tag: Tag,
        range: ByteRange,
        addr: TargetAddr,
        kind: StoreKind,
    ) {
        if self.excluded.overlaps(range) {
            self.partly_excluded_store(thread, at, tag, range, addr, kind);
        } else {
            self.judged_store(thread, at, tag, range, addr, kind);
        }
    }

    #[inline(never)]
    fn partly_excluded_store(
        &mut self,
        thread: ThreadId,
        at: usize,
        tag: Tag,
        range: ByteRange,
        addr: TargetAddr,
        kind: StoreKind,
    ) {
        for gap in self.excluded.gaps(range) {
            let into = gap.start().0 - range.start().0;
            self.judged_store(thread, at, tag, gap, TargetAddr(addr.0 + into), kind);
        }
    }

    #[inline(always)]
    pub(super) fn judged_store(
        &mut self,
        thread: ThreadId,
        at: usize,
        tag: Tag,
        range: ByteRange,
        addr: TargetAddr,
        kind: StoreKind,
    ) {
        if self.duties.persistency {
            self.persisting_store(thread, at, tag, range, addr, kind);
        }
        let state = &self.threads[at];
        if state.stopped || !self.duties.logging {
            return;
        }
        if !state.transactions.is_empty() {
            self.store_in_transaction(thread, at, tag, range, addr);
        } else if self.options.tx_only || !self.tx_only.is_empty() && self.tx_only.overlaps(range) {
            self.store_outside_transaction(thread, tag, range, addr);
        }
    }

    #[inline(always)]
    pub(super) fn persisting_store(
        &mut self,
        thread: ThreadId,
        at: usize,
        tag: Tag,
        range: ByteRange,
        addr: TargetAddr,
        kind: StoreKind,
    ) {
        let now = self.moment();
        let by = thread.into();
        if kind == StoreKind::Locked {
            self.model.fence_at(now, by);
            self.threads[at].recent_write_backs.fenced();
            self.fencing.fence(tag, true);
        }
        let overwritten = match kind {
            StoreKind::NonTemporal => self.model.nt_store_at(now, by, range, tag),
            StoreKind::Plain | StoreKind::Locked => self.model.store_at(now, by, range, tag),
        };
        let state = &mut self.threads[at];
        if state.stopped {
            self.model.forget(range);
            return;
        }
        state.has_stored = true;
        state.to_fence += u64::from(kind == StoreKind::NonTemporal);
        for number in &state.transactions {
            if let Some(transaction) = self.transactions.get_mut(*number) {
                transaction.touched.add(range);
            }
        }
        if let Some(section) = &mut state.section {
            section.touched.add(range);
        }
        if self.sites.next_fence(tag).is_none() {
            state.wants_fence(tag);
        }
        if let Some(earlier) = overwritten
            && self.collector.is_on(BuiltIn::OverwrittenUnpersisted)
        {
            self.overwritten(thread, tag, earlier, range, addr);
        }
    }

    #[cold]
    pub(super) fn overwritten(
        &mut self,
        thread: ThreadId,
        tag: Tag,
        earlier: Tag,
        range: ByteRange,
        addr: TargetAddr,
    ) {
        let now = self.moment();
        let size = range.len();
        self.collector
            .report(BuiltIn::OverwrittenUnpersisted, tag, earlier, size, || {
                let message = format!(
                    "{} overwritten before the previous content was persistent",
                    bytes_are(size)
                );
                let events = vec![
                    RawEvent::new(Role::Store, "overwritten here", tag)
                        .by(thread)
                        .at(now)
                        .on(range, addr),
                    RawEvent::new(
                        Role::EarlierStore,
                        "the previous content is stored here",
                        earlier,
                    ),
                ];
                (message, events)
            });
    }

    #[inline(always)]
    pub(super) fn store_in_transaction(
        &mut self,
        thread: ThreadId,
        at: usize,
        tag: Tag,
        range: ByteRange,
        addr: TargetAddr,
    ) {
        for number in &self.threads[at].transactions {
            if let Some(transaction) = self.transactions.get_mut(*number)
                && transaction.logged.has(range)
            {
                return;
            }
        }
        self.perhaps_unlogged_store(thread, at, tag, range, addr);
    }

    #[inline(never)]
    fn perhaps_unlogged_store(
        &mut self,
        thread: ThreadId,
        at: usize,
        tag: Tag,
        range: ByteRange,
        addr: TargetAddr,
    ) {
        if self.tx_ignored.covers(range) || self.is_by_library(tag) {
            return;
        }
        let numbers = &self.threads[at].transactions;
        // Word by word in the worst case: part may be logged here, part there, part ignored.
        let mut left = self.tx_ignored.gaps(range);
        for number in numbers {
            if let Some(transaction) = self.transactions.get(*number) {
                left = left
                    .iter()
                    .flat_map(|gap| transaction.logged.gaps(*gap))
                    .collect();
            }
        }
        let Some(first) = left.first().copied() else {
            return;
        };
        let now = self.moment();
        let into = first.start().0 - range.start().0;
        let size = left.iter().map(|gap| gap.len()).sum();
        self.collector
            .report(BuiltIn::TxUnloggedStore, tag, Tag(0), size, || {
                let message = format!(
                    "{} stored to in a transaction that has neither logged nor allocated them",
                    bytes_are(size)
                );
                let event = RawEvent::new(Role::Store, stored(size), tag)
                    .by(thread)
                    .at(now)
                    .on(first, TargetAddr(addr.0 + into));
                (message, vec![event])
            });
    }

    /// libpmemobj keeps its own heap consistent by other means than the program's transaction, and
    /// does not announce all of it. A copy that the program has libpmem make is made persistent on
    /// purpose, beside the transaction.
    fn is_by_library(&self, tag: Tag) -> bool {
        let site = self.sites.site(tag);
        self.library_code.contains(site.process, site.pc)
    }

    pub(super) fn store_outside_transaction(
        &mut self,
        thread: ThreadId,
        tag: Tag,
        range: ByteRange,
        addr: TargetAddr,
    ) {
        if self.tx_ignored.covers(range) || self.is_by_library(tag) {
            return;
        }
        let now = self.moment();
        let size = range.len();
        self.collector
            .report(BuiltIn::StoreOutsideTx, tag, Tag(0), size, || {
                let message = format!("{} stored to outside any transaction", bytes_are(size));
                let event = RawEvent::new(Role::Store, stored(size), tag)
                    .by(thread)
                    .at(now)
                    .on(range, addr);
                (message, vec![event])
            });
    }
}
