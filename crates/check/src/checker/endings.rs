//! Mappings, processes, files: where something ends, what was stored must be persistent.
//!
//! `missing-flush`, `missing-fence`, `transient-data`.

use super::*;

impl Checker {
    pub(super) fn rare(&mut self, event: &Event<'_>) {
        match &event.kind {
            EventKind::File { file, path, .. } => {
                let path = String::from_utf8_lossy(path).into_owned();
                self.files.entry(*file).or_default().path = path;
            }
            EventKind::ThreadStart {
                thread, process, ..
            } => {
                let (thread, process) = (*thread, *process);
                self.observe(event);
                let at = self.thread(thread);
                self.threads[at].process = process;
            }
            EventKind::Module {
                process,
                addr,
                len,
                path,
                ..
            } => {
                self.sites.observe(event);
                let end = TargetAddr(addr.0.saturating_add(*len));
                self.library_code.replace(*process, *addr, end);
                let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
                if name.starts_with(b"libpmem") {
                    self.library_code.add(*process, *addr, end);
                }
            }
            EventKind::ProcessStart {
                process, parent, ..
            } => {
                match self.sites.observe(event) {
                    true => {
                        self.library_code
                            .replace(*process, TargetAddr(0), TargetAddr(u64::MAX))
                    }
                    false => self.library_code.fork(*parent, *process),
                }
                self.observe(event);
            }
            EventKind::ThreadExit => {
                let at = self.thread(event.thread);
                self.finish_run(at);
            }
            EventKind::Map { addr, len, .. } | EventKind::Unmap { addr, len } => {
                if let EventKind::Map { file, offset, .. } = &event.kind {
                    let mappings = &mut self.files.entry(*file).or_default().mappings;
                    mappings.truncate(MAPPINGS_MAX - 1);
                    mappings.push_front((*offset, *len, addr.0));
                }
                let at = self.thread(event.thread);
                self.finish_run(at);
                let ranges = self.spaces.ranges(event.thread, *addr, *len);
                self.observe(event);
                if !ranges.is_empty() {
                    let unmapping = Unmapping {
                        process: self.threads[at].process,
                        thread: event.thread,
                        tag: self.tag_of(at, event),
                    };
                    self.mappings_go(&ranges, unmapping);
                }
                for range in self.spaces.ranges(event.thread, *addr, *len) {
                    self.unmapped.remove(keys::range(range));
                }
            }
            EventKind::ProcessExit { process, status } => {
                let ranges = self.spaces.ranges_of(*process);
                self.observe(event);
                if matches!(status, ExitStatus::Signal(_)) {
                    self.is_killed(*process);
                    return;
                }
                self.judge_unmapped(*process);
                let text = match status {
                    ExitStatus::Exec => "the program is replaced by another",
                    _ => "the program ends",
                };
                let ending = Ending {
                    role: Role::Exit,
                    text: text.to_owned(),
                    tag: Tag(0),
                    thread: None,
                };
                self.mappings_end(&ranges, &ending);
            }
            EventKind::Msync { addr, len, flags } => {
                if flags & MS_SYNC != 0 {
                    let at = self.thread(event.thread);
                    let tag = self.tag_of(at, event);
                    for (range, _) in self.parts(event.thread, *addr, *len) {
                        self.synchronised(event.thread, range, tag);
                    }
                }
            }
            EventKind::Fsync { file, .. } => {
                let at = self.thread(event.thread);
                let tag = self.tag_of(at, event);
                self.synchronised(event.thread, keys::whole_file(*file), tag);
            }
            EventKind::FileSync { file, offset, size } => {
                let (file, offset, len) = (*file, *offset, *size);
                let at = self.thread(event.thread);
                let tag = self.tag_of(at, event);
                let range = keys::range(FileRange { file, offset, len });
                self.synchronised(event.thread, range, tag);
            }
            EventKind::FileWrite {
                file, offset, size, ..
            } => {
                // Not a store through a mapping: when it persists is the file system's affair.
                let (file, offset) = (*file, *offset);
                let len = u64::from(*size);
                self.model
                    .forget(keys::range(FileRange { file, offset, len }));
            }
            EventKind::Truncate { file, size } => {
                let (file, offset) = (*file, *size);
                let len = u64::MAX;
                self.model
                    .forget(keys::range(FileRange { file, offset, len }));
            }
            EventKind::Annotation { code, args, text } => self.annotation(event, *code, args, text),
            EventKind::End { status } => {
                self.ended = Some(*status);
                if matches!(status, ExitStatus::Signal(_)) {
                    self.is_killed(ProcessId(1));
                }
            }
            _ => self.observe(event),
        }
    }

    pub(super) fn observe(&mut self, event: &Event<'_>) {
        if let Err(fault) = self.spaces.observe(event) {
            self.fault.get_or_insert(fault);
        }
        self.recent_threads = Default::default();
        self.windows = Default::default();
    }

    pub(super) fn synchronised(&mut self, thread: ThreadId, range: ByteRange, tag: Tag) {
        self.apply(thread, Op::Msync(range), tag);
        self.fencing.fence(tag, false);
    }

    /// Mappings went away for good: what no other mapping shows must be persistent.
    fn mappings_end(&mut self, ranges: &[FileRange], ending: &Ending) {
        for range in self.shown_no_more(ranges) {
            self.region_ends(range, ending);
        }
    }

    /// Mappings went away while their process goes on. What was never written back may still be,
    /// through another mapping of the file or by the file's descriptor: whoever lets a mapping grow
    /// unmaps it first. So it is judged when the process ends. What only lacks its fence is judged
    /// at once, because nobody comes back for that, and any locked instruction of the C library
    /// would hide it.
    fn mappings_go(&mut self, ranges: &[FileRange], unmapping: Unmapping) {
        for region in self.shown_no_more(ranges) {
            let dirty: Vec<ByteRange> = self
                .model
                .unpersisted_in(region)
                .filter(|(_, status)| status.state == Persistency::Dirty)
                .map(|(range, _)| range)
                .collect();
            let mut done = RangeSet::default();
            done.insert(region, ());
            for range in dirty {
                done.remove(range);
                self.unmapped.insert(range, unmapping);
                self.rules_end(range);
            }
            let done: Vec<ByteRange> = done.overlapping(region).map(|(range, ())| range).collect();
            for range in done {
                self.region_ends(range, &unmapping.into());
            }
        }
    }

    /// A process ends: nobody will make persistent any more what it unmapped.
    fn judge_unmapped(&mut self, process: ProcessId) {
        let everything = ByteRange::new(Key(0), u64::MAX);
        let left: Vec<(ByteRange, Unmapping)> = self
            .unmapped
            .overlapping(everything)
            .filter(|(_, unmapping)| unmapping.process == process)
            .collect();
        for (range, unmapping) in left {
            self.unmapped.remove(range);
            self.region_ends(range, &unmapping.into());
        }
    }

    /// A signal ended a process. It may have meant to bring to disk what it had unmapped;
    /// write-backs are made through the mapping, so where these count, whoever unmaps has finished.
    fn is_killed(&mut self, process: ProcessId) {
        if !self.persists_by_msync() {
            self.judge_unmapped(process);
        }
        self.killed.insert(process);
    }

    /// What of these ranges no process has mapped.
    fn shown_no_more(&self, ranges: &[FileRange]) -> Vec<ByteRange> {
        let mut gone = RangeSet::default();
        for range in ranges {
            gone.insert(keys::range(*range), ());
        }
        for range in self.spaces.all_ranges() {
            gone.remove(keys::range(range));
        }
        let everything = ByteRange::new(Key(0), u64::MAX);
        let gone = gone.overlapping(everything);
        gone.map(|(range, ())| range).collect()
    }

    pub(super) fn region_ends(&mut self, range: ByteRange, ending: &Ending) {
        self.must_be_persistent(range, ending);
        self.model.forget(range);
        self.rules_end(range);
    }

    /// What was said of a range held as long as it was mapped.
    fn rules_end(&mut self, range: ByteRange) {
        self.excluded.remove(range);
        self.tx_ignored.remove(range);
        self.tx_only.remove(range);
    }

    pub(super) fn must_be_persistent(&mut self, range: ByteRange, ending: &Ending) {
        let left: Vec<(ByteRange, Status)> = self.model.unpersisted_in(range).collect();
        let mut transient_line = None;
        for (range, status) in left {
            let by_killed = self
                .thread_index
                .get(&ThreadId(status.thread.0))
                .is_some_and(|at| self.killed.contains(&self.threads[*at].process));
            if by_killed || self.reported_in_tx.contains(&status.tag) {
                continue;
            }
            self.report_unpersisted(range, &status, ending);
            let line = range.start().0 / LINE_BYTES;
            let stores = self.model.stores_without_write_back(range.start().0);
            if status.state == Persistency::Dirty
                && transient_line != Some(line)
                && let Some(stores) = stores
                && stores >= TRANSIENT_STORES_MIN
            {
                transient_line = Some(line);
                self.report_transient(range, &status, stores);
            }
        }
    }

    pub(super) fn report_unpersisted(
        &mut self,
        range: ByteRange,
        status: &Status,
        ending: &Ending,
    ) {
        let next_fence = self.sites.next_fence(status.tag);
        if status.state != Persistency::Dirty && self.fencing.first.is_none() {
            let started = match status.state {
                Persistency::Flushing => status.flush_tag,
                _ => status.tag,
            };
            self.fencing.left.get_or_insert(started);
        }
        let (rule, what) = match status.state {
            Persistency::Dirty => (BuiltIn::MissingFlush, "never written back"),
            Persistency::Draining => (BuiltIn::MissingFence, "past the cache and never fenced"),
            _ => (BuiltIn::MissingFence, "written back and never fenced"),
        };
        self.collector
            .report(rule, status.tag, Tag(0), range.len(), || {
                let message = format!("{} stored, {what}", bytes_are(range.len()));
                let mut events = not_persistent(range, status, next_fence);
                let end = RawEvent::new(ending.role, ending.text.clone(), ending.tag);
                events.push(RawEvent {
                    thread: ending.thread,
                    ..end
                });
                (message, events)
            });
    }

    pub(super) fn report_transient(&mut self, range: ByteRange, status: &Status, stores: u16) {
        self.collector.report(
            BuiltIn::TransientData,
            status.tag,
            Tag(0),
            LINE_BYTES,
            || {
                let message = format!(
                    "a line is stored to {} times and never written back: it belongs in DRAM",
                    match stores {
                        // The count saturates.
                        65_000.. => "more than 65,000".to_owned(),
                        n => grouped(u64::from(n)),
                    }
                );
                let store = RawEvent::new(Role::Store, "last stored to here", status.tag)
                    .by(ThreadId(status.thread.0))
                    .at(status.stored)
                    .on(range, TargetAddr(0));
                (message, vec![store])
            },
        );
    }
}
