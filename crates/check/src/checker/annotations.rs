//! This project's own annotations.
//!
//! `not-persisted`, `not-ordered`, and sections (`missing-flush`, `missing-fence`).

use super::*;

impl Checker {
    pub(super) fn annotation(
        &mut self,
        event: &Event<'_>,
        code: u32,
        args: &[u64; 5],
        text: &[u8],
    ) {
        let thread = event.thread;
        let at = self.thread(thread);
        self.finish_run(at);
        let (addr, len) = (TargetAddr(args[0]), args[1]);
        match code {
            annotation::START => self.threads[at].stopped = false,
            annotation::STOP => self.threads[at].stopped = true,
            annotation::EXCLUDE => {
                for (range, _) in self.parts(thread, addr, len) {
                    self.excluded.insert(range);
                    self.model.forget(range);
                }
            }
            annotation::INCLUDE => {
                for (range, _) in self.parts(thread, addr, len) {
                    self.excluded.remove(range);
                }
            }
            annotation::IS_PERSISTED => self.assert_persisted(event, at, addr, len),
            annotation::IS_ORDERED_BEFORE => {
                let b = (TargetAddr(args[2]), args[3]);
                self.assert_ordered(event, at, (addr, len), b);
            }
            annotation::TX_BEGIN => self.tx_begin(at, own_number(thread)),
            annotation::TX_END => {
                self.tx_end(at, event.pc, event.context, own_number(thread));
            }
            annotation::TX_ADD => {
                let tag = self.tag_of(at, event);
                self.tx_add(at, tag, own_number(thread), addr, len, true);
            }
            annotation::TX_ALLOC => {
                self.threads[at].allocates = true;
                let tag = self.tag_of(at, event);
                self.tx_add(at, tag, own_number(thread), addr, len, false);
                self.threads[at].allocates = false;
            }
            annotation::TX_ONLY => {
                for (range, _) in self.parts(thread, addr, len) {
                    self.tx_only.insert(range, ());
                }
            }
            annotation::SECTION_BEGIN => {
                self.threads[at].section = Some(Section {
                    begun: self.moment(),
                    ..Section::default()
                });
            }
            annotation::SECTION_END => self.section_end(event, at),
            annotation::OFENCE | annotation::DFENCE | annotation::FENCE => {
                let op = match code {
                    annotation::OFENCE => Op::Ofence,
                    annotation::DFENCE => Op::Dfence,
                    _ => Op::Sfence,
                };
                let tag = self.tag_of(at, event);
                let outcome = self.apply(thread, op, tag);
                self.counts.fences += 1;
                let completed = outcome == Outcome::Fenced { completed: true };
                // Often it stands beside the real instruction: not judged for being superfluous.
                self.fenced(at, tag, completed, false);
            }
            annotation::STORE => {
                let tag = self.tag_of(at, event);
                self.counts.stores += 1;
                for (range, addr) in self.parts(thread, addr, len) {
                    self.store_part(thread, at, tag, range, addr, StoreKind::Plain);
                }
            }
            annotation::FLUSH => {
                let tag = self.tag_of(at, event);
                self.threads[at].to_fence += 1;
                for (range, _) in self.parts(thread, addr, len) {
                    self.write_back(thread, range, tag);
                }
            }
            annotation::SET_CLEAN => self.forget(thread, addr, len),
            annotation::REGISTER_VARIABLE => {
                self.variables.insert(text.to_vec(), (args[1], args[2]));
                let now = self.moment();
                self.registered.end(text, now);
                let start = TargetAddr(args[1]);
                for (range, part) in self.parts(thread, start, args[2]) {
                    self.registered.begin(text, range, part.0 - start.0, now);
                }
            }
            annotation::UNREGISTER_VARIABLE => {
                self.variables.remove(text);
                self.registered.end(text, self.moment());
            }
            _ => {}
        }
    }

    pub(super) fn assert_persisted(
        &mut self,
        event: &Event<'_>,
        at: usize,
        addr: TargetAddr,
        len: u64,
    ) {
        let assertion = self.tag_of(at, event);
        let thread = event.thread;
        for (range, _) in self.parts(thread, addr, len) {
            let left: Vec<(ByteRange, Status)> = self.model.unpersisted_in(range).collect();
            for (range, status) in left {
                let next_fence = self.sites.next_fence(status.tag);
                self.collector.report(
                    BuiltIn::NotPersisted,
                    status.tag,
                    assertion,
                    range.len(),
                    || {
                        let message = format!(
                            "{} asserted to be persistent, and not",
                            bytes_are(range.len())
                        );
                        let mut events = not_persistent(range, &status, next_fence);
                        let text = "asserted to be persistent here";
                        events.push(RawEvent::new(Role::Assertion, text, assertion).by(thread));
                        (message, events)
                    },
                );
            }
        }
    }

    pub(super) fn assert_ordered(
        &mut self,
        event: &Event<'_>,
        at: usize,
        a: (TargetAddr, u64),
        b: (TargetAddr, u64),
    ) {
        let assertion = self.tag_of(at, event);
        let thread = event.thread;
        let first = self.parts(thread, a.0, a.1);
        let second = self.parts(thread, b.0, b.1);
        for (a, _) in &first {
            for (b, _) in &second {
                if self.model.is_ordered_before(*a, *b) {
                    continue;
                }
                let earlier: Vec<(ByteRange, Status)> = self.model.status(*a).collect();
                let guilty = earlier
                    .iter()
                    .find(|(part, _)| !self.model.is_ordered_before(*part, *b))
                    .or(earlier.first());
                let later = self.model.status(*b).min_by_key(|(_, s)| s.persist.from);
                let (Some((a_part, a_status)), Some((b_part, b_status))) = (guilty, later) else {
                    continue;
                };
                let (a_part, a_status) = (*a_part, *a_status);
                let next_fence = self.sites.next_fence(a_status.tag);
                self.collector.report(
                    BuiltIn::NotOrdered,
                    a_status.tag,
                    assertion,
                    a_part.len(),
                    || {
                        let message =
                            "asserted to persist before something else, which can persist \
                                       first"
                                .to_owned();
                        let mut events = not_persistent(a_part, &a_status, next_fence);
                        let later = RawEvent::new(
                            Role::LaterStore,
                            format!("{} that can persist before it", stored(b_part.len())),
                            b_status.tag,
                        );
                        events.push(
                            later
                                .by(ThreadId(b_status.thread.0))
                                .at(b_status.stored)
                                .on(b_part, TargetAddr(0)),
                        );
                        let text = "the order is asserted here";
                        events.push(RawEvent::new(Role::Assertion, text, assertion).by(thread));
                        (message, events)
                    },
                );
            }
        }
    }

    pub(super) fn section_end(&mut self, event: &Event<'_>, at: usize) {
        let tag = self.tag_of(at, event);
        let ending = Ending {
            role: Role::SectionEnd,
            text: "the section ends here".to_owned(),
            tag,
            thread: Some(event.thread),
        };
        let thread = event.thread;
        let left: Vec<(ByteRange, Status)> = match self.threads[at].section.take() {
            Some(mut section) => {
                let lines = section.touched.take();
                let begun = section.begun;
                lines
                    .into_iter()
                    .flat_map(|line| self.model.unpersisted_in(line))
                    .filter(|(_, s)| s.stored > begun && s.thread.0 == thread.0)
                    .collect()
            }
            None => {
                let unfinished = self.model.unpersisted();
                unfinished.filter(|(_, s)| s.thread.0 == thread.0).collect()
            }
        };
        for (range, status) in left {
            self.report_unpersisted(range, &status, &ending);
        }
    }
}
