//! Write-backs and fences that gain nothing.
//!
//! Neighbouring lines written back by one instruction are one *run*, judged as a whole: `clean-flush`, `double-flush`,
//! `oversized-flush`. A fence is judged by what it completes: `empty-fence`.

use super::*;

impl Checker {
    #[inline]
    pub(super) fn flush(&mut self, event: &Event<'_>, kind: FlushKind, addr: TargetAddr) {
        let at = self.thread(event.thread);
        self.counts.flushes += 1;
        let Some(found) = self.spaces.translate(event.thread, addr) else {
            return;
        };
        let tag = self.tag(at, event);
        let offset = found.offset & !(LINE_BYTES - 1);
        let line = space::key_range(FileRange {
            file: found.file,
            offset,
            len: LINE_BYTES,
        });
        let addr = TargetAddr(addr.0 & !(LINE_BYTES - 1));
        self.flush_line(event.thread, at, tag, kind, (line, addr));
    }

    #[inline]
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
        let Outcome::Flushed(outcome) = outcome else {
            return;
        };
        let state = &mut self.threads[at];
        state.to_fence += 1;
        if state.stopped || self.excluded.overlaps(line) {
            // What was stored there is not known, so neither is whether the write-back was needed.
            return;
        }
        let goes_on = state
            .run
            .as_ref()
            .is_some_and(|run| run.tag == tag && run.next == line.start().0);
        if !goes_on {
            if state.run.is_some() {
                self.finish_run(at);
            }
            self.threads[at].run = Some(FlushRun {
                tag,
                next: line.start().0,
                first: line,
                first_addr: addr,
                begun: self.moment(),
                lines: 0,
                clean: 0,
                again: 0,
                persisted: None,
                earlier: Tag(0),
            });
        }
        let Some(run) = &mut self.threads[at].run else {
            return;
        };
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
    pub(super) fn finish_run(&mut self, at: usize) {
        let Some(run) = self.threads[at].run.take() else {
            return;
        };
        if run.clean == 0 && run.again == 0 {
            return;
        }
        let thread = self.threads[at].id;
        let whole = ByteRange::new(run.first.start(), run.next - run.first.start().0);
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

    pub(super) fn fence(&mut self, event: &Event<'_>, kind: FenceKind) {
        let at = self.thread(event.thread);
        if self.threads[at].run.is_some() {
            self.finish_run(at);
        }
        let tag = self.tag(at, event);
        let op = match kind {
            FenceKind::Sfence => Op::Sfence,
            FenceKind::Mfence => Op::Mfence,
            FenceKind::Locked => Op::Locked,
        };
        let outcome = self.apply(event.thread, op, tag);
        if kind == FenceKind::Locked {
            // It is there for other reasons; that it also completes write-backs is welcome.
            return;
        }
        self.counts.fences += 1;
        let completed = outcome == Outcome::Fenced { completed: true };
        self.fenced(event, at, tag, completed, kind == FenceKind::Sfence);
    }

    pub(super) fn fenced(
        &mut self,
        event: &Event<'_>,
        at: usize,
        tag: Tag,
        completed: bool,
        judged: bool,
    ) {
        let state = &mut self.threads[at];
        let nothing_to_do = !completed && state.to_fence == 0;
        state.to_fence = 0;
        for store in state.before_fence.drain(..) {
            self.sites.set_next_fence(store, tag);
        }
        if nothing_to_do && judged && state.has_stored && !state.stopped {
            let now = self.moment();
            let thread = event.thread;
            self.collector.report(Rule::EmptyFence, tag, Tag(0), 0, || {
                let message = "a fence with nothing to complete: no write-back and no non-temporal \
                               store of this thread since its previous fence";
                let fence = RawEvent::new("fence", "fenced here", tag);
                (message.to_owned(), vec![fence.by(thread).at(now)])
            });
        }
    }
}
