//! Locks of the engine. They spin briefly, then yield to the scheduler.
//!
//! [`EngineLock`] protects the translator's global state. It is taken only in engine code proper
//! (never while a thread runs in the code cache), so a signal handler that interrupted the cache
//! may take it, and one that interrupted engine code must not (and does not: see `signal.rs`).

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

/// A value behind a spin lock.
pub struct SpinLock<T> {
    locked: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: access goes through the lock.
unsafe impl<T> Sync for SpinLock<T> {}

/// Access to the value while the lock is held.
pub struct Guard<'a, T>(&'a SpinLock<T>);

impl<T> SpinLock<T> {
    pub const fn new(value: T) -> Self {
        SpinLock {
            locked: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    pub fn lock(&self) -> Guard<'_, T> {
        let mut spins = 0u32;
        while self
            .locked
            .compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            spins += 1;
            if spins > 200 {
                crate::sys::yield_now();
            } else {
                core::hint::spin_loop();
            }
        }
        Guard(self)
    }

    /// Frees the lock in a forked child, where the holder may not exist.
    pub fn reset_after_fork(&self) {
        self.locked.store(0, Ordering::Release);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}
impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.value.get() }
    }
}
impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.0.locked.store(0, Ordering::Release);
    }
}
