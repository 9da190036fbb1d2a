//! Stores: what they overwrite, and whether a transaction may make them.
//!
//! `overwritten-unpersisted`, `tx-unlogged-store`, `store-outside-tx`.

use super::*;

impl Checker {
    #[inline]
    pub(super) fn store(&mut self, event: &Event<'_>, access: &Access<'_>, kind: StoreKind) {
        let at = self.thread(event.thread);
        if self.threads[at].run.is_some() {
            self.finish_run(at);
        }
        self.counts.stores += 1;
        let tag = self.tag(at, event);
        let len = u64::from(access.size);
        match self.whole(event.thread, access.addr, len) {
            Some(range) => self.store_part(event.thread, at, tag, (range, access.addr), kind),
            None => {
                for part in self.parts(event.thread, access.addr, len) {
                    self.store_part(event.thread, at, tag, part, kind);
                }
            }
        }
    }

    pub(super) fn store_part(
        &mut self,
        thread: ThreadId,
        at: usize,
        tag: Tag,
        part: Part,
        kind: StoreKind,
    ) {
        if !self.excluded.is_empty() && self.excluded.overlaps(part.0) {
            let gaps = self.excluded.gaps(part.0);
            for gap in gaps {
                let into = gap.start().0 - part.0.start().0;
                let addr = TargetAddr(part.1.0 + into);
                self.judged_store(thread, at, tag, (gap, addr), kind);
            }
            return;
        }
        self.judged_store(thread, at, tag, part, kind);
    }

    #[inline]
    pub(super) fn judged_store(
        &mut self,
        thread: ThreadId,
        at: usize,
        tag: Tag,
        part: Part,
        kind: StoreKind,
    ) {
        let (range, addr) = part;
        if self.duties.persistency {
            self.persisting_store(thread, at, tag, part, kind);
        }
        let state = &self.threads[at];
        if state.stopped || !self.duties.logging {
            return;
        }
        if !state.transactions.is_empty() {
            self.store_in_transaction(thread, at, tag, part);
        } else if self.options.tx_only || !self.tx_only.is_empty() && self.tx_only.overlaps(range) {
            self.store_outside_transaction(thread, tag, (range, addr));
        }
    }

    #[inline]
    pub(super) fn persisting_store(
        &mut self,
        thread: ThreadId,
        at: usize,
        tag: Tag,
        part: Part,
        kind: StoreKind,
    ) {
        let range = part.0;
        let past_the_cache = kind == StoreKind::NonTemporal;
        let outcome = match kind {
            StoreKind::Locked => self.apply(thread, Op::Rmw(Write::without_values(range)), tag),
            _ => {
                let now = self.moment();
                self.model
                    .store_at(now, thread.into(), range, past_the_cache, tag)
            }
        };
        let state = &mut self.threads[at];
        if state.stopped {
            self.model.forget(range);
            return;
        }
        state.has_stored = true;
        state.to_fence += u64::from(past_the_cache);
        for number in &state.transactions {
            if let Some(transaction) = self.transactions.get_mut(*number) {
                transaction.touched.add(range);
            }
        }
        if let Some(section) = &mut state.section {
            section.touched.add(range);
        }
        if self.sites.next_fence(tag).is_none()
            && state.before_fence.len() < BEFORE_FENCE_MAX
            && !state.before_fence.contains(&tag)
        {
            state.before_fence.push(tag);
        }
        if let Outcome::Stored {
            overwrote_unpersisted: Some(earlier),
        } = outcome
            && self.collector.is_on(Rule::OverwrittenUnpersisted)
        {
            self.overwritten(thread, tag, earlier, part);
        }
    }

    #[cold]
    pub(super) fn overwritten(&mut self, thread: ThreadId, tag: Tag, earlier: Tag, part: Part) {
        let now = self.moment();
        let size = part.0.len();
        self.collector
            .report(Rule::OverwrittenUnpersisted, tag, earlier, size, || {
                let message = format!(
                    "{} overwritten before the previous content was persistent",
                    bytes_are(size)
                );
                let events = vec![
                    RawEvent::new("store", "overwritten here", tag)
                        .by(thread)
                        .at(now)
                        .on(part.0, part.1),
                    RawEvent::new(
                        "earlier-store",
                        "the previous content is stored here",
                        earlier,
                    ),
                ];
                (message, events)
            });
    }

    pub(super) fn store_in_transaction(
        &mut self,
        thread: ThreadId,
        at: usize,
        tag: Tag,
        part: Part,
    ) {
        let (range, addr) = part;
        let numbers = &self.threads[at].transactions;
        let mut covered = false;
        for number in numbers {
            if let Some(transaction) = self.transactions.get(*number) {
                covered |= transaction.logged.covers(range);
            }
        }
        if covered || self.tx_ignored.covers(range) {
            return;
        }
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
        if self.is_by_library(tag) {
            return;
        }
        let now = self.moment();
        let into = first.start().0 - range.start().0;
        let size = left.iter().map(|gap| gap.len()).sum();
        self.collector
            .report(Rule::TxUnloggedStore, tag, Tag(0), size, || {
                let message = format!(
                    "{} stored to in a transaction that has neither logged nor allocated them",
                    bytes_are(size)
                );
                let event = RawEvent::new("store", stored(size), tag)
                    .by(thread)
                    .at(now)
                    .on(first, TargetAddr(addr.0 + into));
                (message, vec![event])
            });
    }

    /// libpmemobj keeps its own heap consistent by other means than the program's transaction, and does not announce all of it. A copy
    /// that the program has libpmem make is made persistent on purpose, beside the transaction.
    fn is_by_library(&self, tag: Tag) -> bool {
        let pc = self.sites.site(tag).pc;
        let mut code = self.library_code.iter();
        code.any(|(start, end)| (*start..*end).contains(&pc))
    }

    pub(super) fn store_outside_transaction(&mut self, thread: ThreadId, tag: Tag, part: Part) {
        if self.tx_ignored.covers(part.0) || self.is_by_library(tag) {
            return;
        }
        let now = self.moment();
        let size = part.0.len();
        self.collector
            .report(Rule::StoreOutsideTx, tag, Tag(0), size, || {
                let message = format!("{} stored to outside any transaction", bytes_are(size));
                let event = RawEvent::new("store", stored(size), tag)
                    .by(thread)
                    .at(now)
                    .on(part.0, part.1);
                (message, vec![event])
            });
    }
}
