//! Write-backs and fences that gain nothing.
//!
//! Neighbouring lines written back by one instruction are one *run*, judged as a whole:
//! `clean-flush`, `double-flush`, `oversized-flush`. A fence is judged by what it completes:
//! `empty-fence`.
//!
//! `redirtied-line`: a thread writes a line back twice with a store in between and no fence. Exact
//! when it is reported; of a thread with many lines under way at once some are missed, because few
//! are remembered.
//!
//! `flush-outside-pm`: the engine tells of write-backs of the stack and the heap, once for each
//! place in the code.
//!
//! `no-fence` is the headline over `missing-fence` findings of a program that has no fence at all.

use super::*;

impl Checker {
    #[inline]
    pub(super) fn flush(
        &mut self,
        thread: ThreadId,
        pc: TargetAddr,
        context: ContextId,
        kind: FlushKind,
        addr: TargetAddr,
    ) {
        let at = self.thread(thread);
        self.counts.flushes += 1;
        let Some(byte) = self.whole(thread, addr, 1) else {
            let unmapped = MapFault::Unmapped(thread, addr);
            self.fault.get_or_insert(unmapped);
            return;
        };
        let tag = self.tag(at, pc, context);
        let line = Line::of(byte.start()).range();
        let addr = TargetAddr(addr.0 & !(LINE_BYTES - 1));
        self.flush_line(thread, at, tag, kind, (line, addr));
    }

    #[inline(always)]
    pub(super) fn flush_line(
        &mut self,
        thread: ThreadId,
        at: usize,
        tag: Tag,
        kind: FlushKind,
        part: Part,
    ) {
        let (line, addr) = part;
        let now = self.moment();
        let number = Line::of(line.start());
        let outcome = self.model.flush_at(now, thread.into(), number, kind, tag);
        let state = &mut self.threads[at];
        state.to_fence += 1;
        if state.stopped || self.excluded.overlaps(line) {
            // What was stored there is not known, so neither is whether the write-back was needed.
            return;
        }
        if !state.run.goes_on(tag, line) {
            self.finish_run(at);
            self.threads[at].run = FlushRun {
                tag,
                first: line.start(),
                first_addr: addr,
                begun: now,
                ..FlushRun::default()
            };
        }
        let Thread {
            run,
            recent_write_backs: run_over,
            ..
        } = &mut self.threads[at];
        run.lines += 1;
        run.next = line.end().0;
        let earlier = match kind {
            // Complete by itself, and ordered: what was stored before is durable before what is
            // stored after.
            FlushKind::Clflush => None,
            _ => {
                if outcome == FlushOutcome::Useful {
                    self.fencing.write_back(tag);
                }
                run_over.write_back(number, tag)
            }
        };
        match outcome {
            FlushOutcome::Useful => {
                self.sites.works(tag).needed += 1;
                if let Some(earlier) = earlier {
                    run.redirtied += 1;
                    run.earlier_redirtied = earlier;
                }
            }
            FlushOutcome::Again { earlier } => {
                self.sites.works(tag).needless += 1;
                run.again += 1;
                run.earlier = earlier;
            }
            FlushOutcome::Clean { persisted } => {
                self.sites.works(tag).needless += 1;
                run.clean += 1;
                run.persisted = run.persisted.or(persisted);
            }
            FlushOutcome::Ignored => {
                self.sites.works(tag).needless += 1;
                run.clean += 1;
            }
        }
    }

    /// Judges the write-backs of a range as a whole.
    #[inline(always)]
    pub(super) fn finish_run(&mut self, at: usize) {
        let run = &mut self.threads[at].run;
        if run.lines == 0 {
            return;
        }
        if run.clean == 0 && run.again == 0 && run.redirtied == 0 {
            run.lines = 0;
        } else {
            self.judge_run(at);
        }
    }

    #[inline(never)]
    fn judge_run(&mut self, at: usize) {
        let run = std::mem::take(&mut self.threads[at].run);
        let thread = self.threads[at].id;
        let whole = ByteRange::new(run.first, run.next - run.first.0);
        let place = (whole, run.first_addr);
        let flush_event = |text: String| {
            RawEvent::new(Role::Flush, text, run.tag)
                .by(thread)
                .at(run.begun)
                .on(place.0, place.1)
        };
        if run.clean > 0 {
            let oversized = run.clean < run.lines && run.clean * 2 > run.lines;
            let rule = match oversized {
                true => BuiltIn::OversizedFlush,
                false => BuiltIn::CleanFlush,
            };
            let pointless =
                self.options.model.domain.rules().clwb == brownout_model::FlushRule::Ignored;
            self.collector.report(rule, run.tag, Tag(0), run.clean, || {
                let message = match (pointless, run.lines) {
                    (true, _) => "a write-back in a domain where write-backs do nothing".to_owned(),
                    (false, 1) if run.persisted.is_none() => {
                        "a write-back of a line that was never modified".to_owned()
                    }
                    (false, 1) => {
                        "a write-back of a line that was not modified since it was last persistent"
                            .to_owned()
                    }
                    (false, lines) => format!(
                        "{} of {} lines written back were not modified since they were last persistent",
                        grouped(run.clean),
                        grouped(lines)
                    ),
                };
                let text = match run.lines {
                    1 => "the line is written back here".to_owned(),
                    lines => format!("{} lines are written back here", grouped(lines)),
                };
                let mut events = vec![flush_event(text)];
                if let Some((store, flush)) = run.persisted {
                    events.push(RawEvent::new(Role::EarlierStore, "it was last stored to here", store));
                    if flush != Tag(0) && flush != run.tag {
                        let text = "and written back here already";
                        events.push(RawEvent::new(Role::EarlierFlush, text, flush));
                    }
                }
                (message, events)
            });
        }
        if run.redirtied > 0 {
            let (tag, earlier, lines) = (run.tag, run.earlier_redirtied, run.redirtied);
            self.collector
                .report(BuiltIn::RedirtiedLine, tag, Tag(0), lines, || {
                    let message = "a line is stored to between its write-back and the fence, and written back again";
                    let first = RawEvent::new(Role::EarlierFlush, "written back here first", earlier);
                    let text = "the line is written back again here, before any fence".to_owned();
                    (message.to_owned(), vec![flush_event(text), first])
                });
        }
        if run.again > 0 {
            let (tag, earlier, again) = (run.tag, run.earlier, run.again);
            self.collector
                .report(BuiltIn::DoubleFlush, tag, Tag(0), again, || {
                    let message =
                        "a second write-back of a line to which nothing was stored in between";
                    let first =
                        RawEvent::new(Role::EarlierFlush, "written back here first", earlier);
                    let text = "the line is written back again here".to_owned();
                    (message.to_owned(), vec![flush_event(text), first])
                });
        }
    }

    /// A write-back of ordinary memory. `word` may be a pointer that lies there.
    #[cold]
    pub(super) fn flush_outside(
        &mut self,
        thread: ThreadId,
        pc: TargetAddr,
        context: ContextId,
        addr: TargetAddr,
        word: u64,
    ) {
        let at = self.thread(thread);
        if self.threads[at].stopped {
            return;
        }
        let tag = self.tag(at, pc, context);
        let now = self.moment();
        let target = self.parts(thread, TargetAddr(word), 1).first().copied();
        self.collector
            .report(BuiltIn::FlushOutsidePm, tag, Tag(0), 0, || {
                let message = "a write-back of ordinary memory, which makes nothing persistent";
                let text = format!(
                    "{:#x}, which is in no tracked file, is written back here",
                    addr.0
                );
                let flush = RawEvent::new(Role::Flush, text, tag).by(thread).at(now);
                let mut events = vec![flush];
                if let Some((range, addr)) = target {
                    let text = "that line holds a pointer to here: was this meant?";
                    let what = RawEvent::new(Role::Target, text, Tag(0));
                    events.push(what.on(range, addr));
                }
                (message.to_owned(), events)
            });
    }

    /// At the end: whether the program ever fenced.
    ///
    /// Either nothing had when a region ended with something under way. Or only locked instructions
    /// did, after the last write-back, and [`resolve`](crate::resolve) keeps that only if the first
    /// is one that the C library's `exit` makes.
    pub(super) fn never_fenced(&mut self) {
        use brownout_model::Domain;
        let fencing = self.fencing;
        let by_fences = matches!(self.options.model.domain, Domain::X86 | Domain::Eadr);
        let by_chance = fencing.first.filter(|_| {
            fencing.first_is_locked
                && !fencing.goes_on
                && fencing.write_backs > 0
                && self.loses_caches()
        });
        let (tag, completed) = match (fencing.left, by_chance) {
            _ if !by_fences => return,
            (Some(left), _) => (left, None),
            (None, Some(fence)) => (fencing.first_write_back, Some(fence)),
            (None, None) => return,
        };
        let lines = fencing.write_backs;
        self.collector
            .report(BuiltIn::NoFence, tag, Tag(0), lines, || {
                let what = match lines {
                    0 => "bytes are stored past the cache".to_owned(),
                    1 => "a line is written back".to_owned(),
                    n => format!("lines are written back {} times", grouped(n)),
                };
                let message = format!("{what}, and the program never executes a fence");
                let text = "under way from here on, with nothing to complete it";
                let mut events = vec![RawEvent::new(Role::Flush, text, tag)];
                if let Some(fence) = completed {
                    let text = "only at its exit a locked instruction completes it, by chance";
                    events.push(RawEvent::new(Role::Completed, text, fence));
                }
                (message, events)
            });
    }

    #[inline]
    pub(super) fn fence(
        &mut self,
        thread: ThreadId,
        pc: TargetAddr,
        context: ContextId,
        kind: FenceKind,
    ) {
        let at = self.thread(thread);
        self.finish_run(at);
        let tag = self.tag(at, pc, context);
        let completed = self.model.fence_at(self.moment(), thread.into());
        self.threads[at].recent_write_backs.fenced();
        self.fencing.fence(tag, kind == FenceKind::Locked);
        if kind == FenceKind::Locked {
            // It is there for other reasons; that it also completes write-backs is welcome.
            return;
        }
        self.counts.fences += 1;
        self.fenced(at, tag, completed, kind == FenceKind::Sfence);
    }

    #[inline]
    pub(super) fn fenced(&mut self, at: usize, tag: Tag, completed: bool, judged: bool) {
        let state = &mut self.threads[at];
        let thread = state.id;
        let nothing_to_do = !completed && state.to_fence == 0;
        state.to_fence = 0;
        state.recent_write_backs.fenced();
        self.fencing.fence(tag, false);
        for store in state.before_fence.drain(..) {
            self.sites.set_next_fence(store, tag);
        }
        let is_needless = nothing_to_do && judged && state.has_stored && !state.stopped;
        let work = self.sites.works(tag);
        match is_needless {
            true => work.needless_fences += 1,
            false => work.fences += 1,
        }
        if is_needless {
            let now = self.moment();
            self.collector.report(BuiltIn::EmptyFence, tag, Tag(0), 0, || {
                let message = "a fence with nothing to complete: no write-back and no non-temporal \
                               store of this thread since its previous fence";
                let fence = RawEvent::new(Role::Fence, "fenced here", tag);
                (message.to_owned(), vec![fence.by(thread).at(now)])
            });
        }
    }
}
