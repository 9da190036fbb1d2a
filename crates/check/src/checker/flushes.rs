//! Write-backs and fences that gain nothing.
//!
//! Neighbouring lines written back by one instruction are one *run*, judged as a whole: `clean-flush`, `double-flush`,
//! `oversized-flush`. A fence is judged by what it completes: `empty-fence`.

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
        let run = &mut self.threads[at].run;
        run.lines += 1;
        run.next = line.end().0;
        match outcome {
            FlushOutcome::Useful => {}
            FlushOutcome::Again { earlier } => {
                run.again += 1;
                run.earlier = earlier;
            }
            FlushOutcome::Clean { persisted } => {
                run.clean += 1;
                run.persisted = run.persisted.or(persisted);
            }
            FlushOutcome::Ignored => run.clean += 1,
        }
    }

    /// Judges the write-backs of a range as a whole.
    #[inline(always)]
    pub(super) fn finish_run(&mut self, at: usize) {
        let run = &mut self.threads[at].run;
        if run.lines == 0 {
            return;
        }
        if run.clean == 0 && run.again == 0 {
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
            RawEvent::new("flush", text, run.tag)
                .by(thread)
                .at(run.begun)
                .on(place.0, place.1)
        };
        if run.clean > 0 {
            let oversized = run.clean < run.lines && run.clean * 2 > run.lines;
            let rule = match oversized {
                true => Rule::OversizedFlush,
                false => Rule::CleanFlush,
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
                    events.push(RawEvent::new("earlier-store", "it was last stored to here", store));
                    if flush != Tag(0) && flush != run.tag {
                        let text = "and written back here already";
                        events.push(RawEvent::new("earlier-flush", text, flush));
                    }
                }
                (message, events)
            });
        }
        if run.again > 0 {
            let (tag, earlier, again) = (run.tag, run.earlier, run.again);
            self.collector
                .report(Rule::DoubleFlush, tag, Tag(0), again, || {
                    let message =
                        "a second write-back of a line to which nothing was stored in between";
                    let first = RawEvent::new("earlier-flush", "written back here first", earlier);
                    let text = "the line is written back again here".to_owned();
                    (message.to_owned(), vec![flush_event(text), first])
                });
        }
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
        for store in state.before_fence.drain(..) {
            self.sites.set_next_fence(store, tag);
        }
        if nothing_to_do && judged && state.has_stored && !state.stopped {
            let now = self.moment();
            self.collector.report(Rule::EmptyFence, tag, Tag(0), 0, || {
                let message = "a fence with nothing to complete: no write-back and no non-temporal \
                               store of this thread since its previous fence";
                let fence = RawEvent::new("fence", "fenced here", tag);
                (message.to_owned(), vec![fence.by(thread).at(now)])
            });
        }
    }
}
