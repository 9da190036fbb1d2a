//! What is known of threads, and what the calls mean by which they get to know it.

use brownout_model::{Domain, Tag};
use brownout_trace::event::{LIBRARY_FUNCTIONS, ProcessId, ThreadId};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::clocks::Who;
use super::locks::Lock;
use super::watch::Watch;

/// What a call of a library function means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// A thread is created.
    Create,
    /// A thread is waited for.
    Join,
    /// A lock is taken.
    Take { shared: bool, surely: bool },
    /// A lock is given back.
    Give,
    /// Argument 0 is waited for, without the lock that is argument 1.
    WaitWithout,
    /// Whoever waits for argument 0 is told.
    Post,
    /// Argument 0 is waited for.
    Wait,
    /// Whoever comes here waits for others and tells others.
    Meet,
    /// Argument 0 is done by whoever comes first.
    Once,
    /// The thread waits for something that is not followed: it may have learnt all.
    Listen,
    /// The same, if it does so again and again.
    Sleep,
}

impl Call {
    fn of(function: &str) -> Option<Call> {
        let take = |shared, surely| Some(Call::Take { shared, surely });
        match function {
            "pthread_create" => Some(Call::Create),
            "sched_yield" => Some(Call::Listen),
            "sleep" | "usleep" | "nanosleep" | "clock_nanosleep" => Some(Call::Sleep),
            "pthread_cond_signal" | "pthread_cond_broadcast" | "sem_post" => Some(Call::Post),
            "pthread_barrier_wait" => Some(Call::Meet),
            "pthread_once" => Some(Call::Once),
            name if name.contains("join") => Some(Call::Join),
            name if name.starts_with("pmemobj_") => None,
            name if name.starts_with("pthread_cond_") => Some(Call::WaitWithout),
            name if name.starts_with("sem_") => Some(Call::Wait),
            name if name.starts_with("pthread_") => match () {
                () if name.ends_with("unlock") => Some(Call::Give),
                () if name.ends_with("_lock") => take(false, true),
                () if name.ends_with("_rdlock") => take(true, true),
                () if name.ends_with("_wrlock") => take(false, true),
                () => take(name.ends_with("rdlock"), false),
            },
            _ => Some(Call::Listen),
        }
    }

    /// Bytes of the object that a function's first argument points to, as glibc has it.
    pub(super) fn object_len(function: &str) -> u64 {
        let has = |word| function.contains(word);
        match () {
            () if has("spin") || has("once") => 4,
            () if has("mutex") => 40,
            () if has("rwlock") => 56,
            () if has("cond") => 48,
            () => 32,
        }
    }
}

/// Everything that is known of threads.
#[derive(Debug)]
pub struct Threads {
    pub(super) watch: Watch,
    pub(super) who: FxHashMap<ThreadId, Who>,
    pub(super) locks: FxHashMap<u64, Lock>,
    /// By number of the function.
    pub(super) calls: Vec<Option<(Call, u64)>>,
    /// Where a thread has slept since it did anything else.
    pub(super) slept: FxHashMap<ThreadId, SmallVec<[Tag; 4]>>,
    /// The call that a thread made last, if it has touched no persistent memory since.
    pub(super) last_calls: FxHashMap<ThreadId, (u32, [u64; 5], Tag)>,
    pub(super) domain: Domain,
}

impl Threads {
    pub fn new(domain: Domain) -> Threads {
        let call = |name: &&str| Some((Call::of(name)?, Call::object_len(name)));
        Threads {
            watch: Watch::default(),
            who: FxHashMap::default(),
            locks: FxHashMap::default(),
            calls: LIBRARY_FUNCTIONS.iter().map(call).collect(),
            slept: FxHashMap::default(),
            last_calls: FxHashMap::default(),
            domain,
        }
    }

    /// Why there is nothing to predict, if that is so.
    pub fn nothing_to_predict(&self) -> Option<&'static str> {
        match () {
            () if !self.watch.has_several() => {
                Some("one thread only: nothing to predict for --threads")
            }
            () if !self.watch.has_persisted() => {
                Some("nothing is made persistent: nothing to predict for --threads")
            }
            () => None,
        }
    }

    pub(super) fn who(&mut self, thread: ThreadId, process: ProcessId) -> Who {
        let Threads { watch, who, .. } = self;
        *who.entry(thread)
            .or_insert_with(|| watch.begin(thread, process))
    }

    pub(super) fn lock(&mut self, key: u64) -> Lock {
        let next = self.locks.len() as Lock;
        *self.locks.entry(key).or_insert(next)
    }
}
