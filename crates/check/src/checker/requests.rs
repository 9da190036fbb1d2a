//! pmemcheck's client requests, as libpmem and libpmemobj make them.

use super::*;

impl Checker {
    #[inline]
    pub(super) fn pmemcheck(
        &mut self,
        thread: ThreadId,
        pc: TargetAddr,
        context: ContextId,
        code: u32,
        args: [u64; 4],
    ) {
        let at = self.thread(thread);
        self.finish_run(at);
        let (addr, len) = (TargetAddr(args[0]), args[1]);
        let (addr_n, len_n) = (TargetAddr(args[1]), args[2]);
        match code {
            pmemcheck::REGISTER_PMEM_MAPPING => {
                for (range, _) in self.parts(thread, addr, len) {
                    self.excluded.remove(range);
                }
            }
            pmemcheck::SET_CLEAN => self.forget(thread, addr, len),
            pmemcheck::DO_FLUSH => {
                let tag = self.tag(at, pc, context);
                self.threads[at].to_fence += 1;
                match self.whole(thread, addr, len) {
                    Some(range) => self.write_back(thread, range, tag),
                    None => {
                        for (range, _) in self.parts(thread, addr, len) {
                            self.write_back(thread, range, tag);
                        }
                    }
                }
            }
            pmemcheck::DO_FENCE => {
                let tag = self.tag(at, pc, context);
                self.model.fence_at(self.moment(), thread.into());
                self.fenced(at, tag, true, false);
            }
            pmemcheck::START_TX => self.tx_begin(at, own_number(thread)),
            pmemcheck::START_TX_N => self.tx_begin(at, args[0]),
            pmemcheck::END_TX => self.tx_end(at, pc, context, own_number(thread)),
            pmemcheck::END_TX_N => self.tx_end(at, pc, context, args[0]),
            pmemcheck::ADD_TO_TX => {
                let tag = self.tag(at, pc, context);
                self.tx_add(at, tag, own_number(thread), addr, len, false);
            }
            pmemcheck::ADD_TO_TX_N => {
                let tag = self.tag(at, pc, context);
                self.tx_add(at, tag, args[0], addr_n, len_n, false);
            }
            pmemcheck::REMOVE_FROM_TX => self.tx_remove(thread, own_number(thread), addr, len),
            pmemcheck::REMOVE_FROM_TX_N => self.tx_remove(thread, args[0], addr_n, len_n),
            pmemcheck::ADD_THREAD_TX_N if self.transactions.get(args[0]).is_some() => {
                self.threads[at].transactions.push(args[0]);
            }
            pmemcheck::REMOVE_THREAD_FROM_TX_N => {
                self.threads[at].transactions.retain(|n| *n != args[0]);
            }
            pmemcheck::ADD_TO_GLOBAL_TX_IGNORE => {
                for (range, _) in self.parts(thread, addr, len) {
                    self.tx_ignored.insert(range, ());
                }
            }
            pmemcheck::REMOVE_PMEM_MAPPING => {
                let tag = self.tag(at, pc, context);
                let ending = Ending {
                    role: Role::Unmap,
                    text: "the region is given up here".to_owned(),
                    tag,
                    thread: Some(thread),
                };
                for (range, start) in self.parts(thread, addr, len) {
                    // libpmemobj cuts holes for what it keeps in the pool only while it runs.
                    if self.spaces.is_whole_mapping(thread, start, range.len()) {
                        self.region_ends(range, &ending);
                    } else {
                        self.excluded.insert(range);
                        self.model.forget(range);
                    }
                }
            }
            _ => {}
        }
    }

    pub(super) fn forget(&mut self, thread: ThreadId, addr: TargetAddr, len: u64) {
        match self.whole(thread, addr, len) {
            Some(range) => self.model.forget(range),
            None => {
                for (range, _) in self.parts(thread, addr, len) {
                    self.model.forget(range);
                }
            }
        }
    }
}
