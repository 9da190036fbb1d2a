//! Mappings of the program: which are tracked, and where their aliases are.

use super::files::{classify, file_was_read, fstat, tracked_file};
use super::record::{Here, event};
use super::regions::{self, REGIONS, Region};
use super::ring::Writer;
use crate::address::{AliasAddr, ProgramAddr};
use crate::asm::{Outcome, program_syscall};
use crate::context::ThreadContext;
use crate::maps::Mapping;
use crate::sys::{self, nr, page_up, sc};
use alloc::vec::Vec;
use brownout_abi::rare;
use brownout_syscalls::pipeline::{Call, Rest};

fn raw(number: u64, a: &[u64; 6]) -> Option<i64> {
    // SAFETY: the program's own call.
    match unsafe { program_syscall(&[number, a[0], a[1], a[2], a[3], a[4], a[5]]) } {
        Outcome::Done(r) => Some(r),
        Outcome::Interrupted => None,
    }
}

/// Ordinary memory is where `result` says, if that is no error.
fn ordinary(result: i64, len: u64) -> Option<i64> {
    if !(-4095..0).contains(&result) {
        let start = result as u64;
        REGIONS.lock().ordinary(start, start + len);
    }
    Some(result)
}

/// `mmap` of the program.
pub fn mmap(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let [addr, len, prot, flags, fd, offset] = call.args;
    let plain = |ctx: &mut ThreadContext| {
        if flags & sys::MAP_FIXED != 0 {
            drop_regions(ctx, addr, addr.wrapping_add(page_up(len)));
        }
        ordinary(rest.make(ctx, call)?, page_up(len))
    };
    let map_type = flags & sys::MAP_TYPE;
    if crate::mode().loads
        && flags & sys::MAP_ANONYMOUS == 0
        && map_type == sys::MAP_PRIVATE
        && let Some(file) = tracked_file(fd)
    {
        // What the program reads there goes unseen: it counts as read now, all of it.
        let result = plain(ctx)?;
        if !(-4095..0).contains(&result) {
            let size = fstat(fd).map_or(0, |s| s.size);
            file_was_read(ctx, file, offset, len.min(size.saturating_sub(offset)));
        }
        return Some(result);
    }
    if flags & sys::MAP_ANONYMOUS != 0
        || map_type != sys::MAP_SHARED && map_type != sys::MAP_SHARED_VALIDATE
        || len == 0
    {
        return plain(ctx);
    }
    let map_sync = map_type == sys::MAP_SHARED_VALIDATE && flags & sys::MAP_SYNC != 0;
    let Some(file) = classify(ctx, fd, map_sync, false, prot & sys::PROT_WRITE != 0) else {
        return plain(ctx);
    };
    let len = page_up(len);
    let insists = flags & (sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE) != 0;
    // MAP_SYNC is stripped and reported as granted: libpmem then takes its flush path.
    let shared = flags
        & !(sys::MAP_TYPE | sys::MAP_SYNC | sys::MAP_FIXED | sys::MAP_FIXED_NOREPLACE)
        | sys::MAP_SHARED;
    let chosen = (insists || (addr != 0 && lonely(addr, len))).then_some(addr);
    let steered = REGIONS.lock().places(len);
    let places: Vec<u64> = match chosen {
        Some(addr) => alloc::vec![addr],
        None => steered.collect(),
    };
    // Mappings change with the ring: what the stream says of them is then what they are for whoever
    // records, and for a fork.
    let _ring = Writer::lock(ctx);
    // First exactly what was asked for, so that the kernel's own checks and errors apply.
    let how = if flags & sys::MAP_FIXED != 0 {
        sys::MAP_FIXED
    } else {
        sys::MAP_FIXED_NOREPLACE
    };
    let (mut at, mut result) = (0, -sys::ENOMEM);
    for place in places {
        at = place;
        result = raw(nr::MMAP, &[at, len, prot, shared | how, fd, offset])?;
        if result != -sys::EEXIST || insists {
            break;
        }
        result = -sys::ENOMEM;
    }
    if result as u64 != at {
        return Some(if result < 0 && result > -4096 {
            result
        } else {
            -sys::ENOMEM
        });
    }
    if flags & sys::MAP_FIXED != 0 {
        // What was tracked there is gone.
        drop_regions(ctx, at, at + len);
    }
    let mut regions = REGIONS.lock();
    let delta = regions::steered_delta(at).unwrap_or_else(|| regions.place_alias(at, len));
    let alias = delta.alias_of(ProgramAddr::new(at));
    clear_for_alias(alias, len);
    // SAFETY: the alias range is ours; the program's view loses write access (and read access, for
    // loads).
    unsafe {
        let r = sc!(
            nr::MMAP,
            alias.get(),
            len,
            prot,
            shared | sys::MAP_FIXED,
            fd,
            offset
        );
        if r < 0 && r > -4096 {
            sc!(nr::MUNMAP, at, len);
            return Some(r);
        }
        sc!(nr::MPROTECT, at, len, regions::shown_prot(prot));
    }
    regions.insert(Region {
        start: at,
        end: at + len,
        delta,
        offset,
        prot,
    });
    drop(regions);
    event(
        ctx,
        rare::MAP,
        [at, len, file as u64, offset, prot, flags],
        &[],
    );
    Some(at as i64)
}

/// Sees that an alias can be mapped without replacing anything that is of use to somebody. A range
/// that the program has only closed (ThreadSanitizer does that to most of the address space) is of
/// none.
fn clear_for_alias(alias: AliasAddr, len: u64) {
    let at = alias.get();
    // SAFETY: replaces nothing; what it maps is replaced by the alias.
    let reserved = unsafe { sys::map_anonymous(at, len, 0) };
    if reserved == at as i64 {
        return;
    }
    let is_in_use = |m: &Mapping| m.start < at + len && at < m.end && (m.read || m.write || m.exec);
    if crate::maps::read().iter().any(is_in_use) {
        crate::fatal_unsupported(&alloc::format!(
            "the program has memory of its own at {at:#x}, where this tool needs {len} bytes to track a mapping"
        ));
    }
}

/// Whether the granules around a hinted address hold nothing else.
fn lonely(addr: u64, len: u64) -> bool {
    if addr & 4095 != 0 || addr.checked_add(len).is_none_or(|e| e > 0x7fff_0000_0000) {
        return false;
    }
    let low = addr >> 31 << 31;
    let high = (addr + len).next_multiple_of(1 << 31);
    crate::maps::read()
        .iter()
        .all(|m| m.end <= low || m.start >= high)
}

/// Tracked mappings in a range are gone from the program's view: their aliases go too.
fn drop_regions(ctx: &mut ThreadContext, start: u64, end: u64) {
    if !regions::any() {
        return;
    }
    let cut = REGIONS.lock().remove(start, end);
    for r in cut {
        // SAFETY: our own alias.
        unsafe { sc!(nr::MUNMAP, r.alias().get(), r.end - r.start) };
        event(
            ctx,
            rare::UNMAP,
            [r.start, r.end - r.start, 0, 0, 0, 0],
            &[],
        );
    }
}

/// `munmap`, `mprotect`, `mremap`, `madvise`, `msync`, `brk`.
pub fn memory(ctx: &mut ThreadContext, call: &Call, rest: Rest<ThreadContext>) -> Option<i64> {
    let (number, a) = (call.number, &call.args);
    let (start, len) = (a[0], page_up(a[1]));
    let end = start.wrapping_add(len);
    let other = number == nr::MREMAP && a[3] & sys::MREMAP_FIXED != 0;
    let touches = regions::any()
        && number != nr::BRK
        && (REGIONS.lock().overlaps(start, end.max(start + 1))
            || other && REGIONS.lock().overlaps(a[4], a[4] + page_up(a[2])));
    if !touches {
        let result = rest.make(ctx, call)?;
        return match number {
            nr::MREMAP => ordinary(result, page_up(a[2])),
            _ => Some(result),
        };
    }
    // As for `mmap`. (`msync` takes its time, and changes no mapping.)
    let _ring = (number != nr::MSYNC).then(|| Writer::lock(ctx));
    match number {
        nr::MUNMAP => {
            if start & 4095 != 0 || len == 0 {
                return raw(number, a);
            }
            // The event first: behind the call another thread may map something new there.
            drop_regions(ctx, start, end);
            rest.make(ctx, call)
        }
        nr::MPROTECT | nr::PKEY_MPROTECT => mprotect(number, a),
        nr::MREMAP => mremap(ctx, a),
        nr::MSYNC => {
            let result = raw(number, a)?;
            if result == 0 {
                event(ctx, rare::MSYNC, [start, a[1], a[2], 0, 0, 0], &[]);
            }
            Some(result)
        }
        _ => {
            // madvise: on the alias where it needs write access (MADV_REMOVE), on both views else.
            const MADV_REMOVE: u64 = 9;
            if a[2] == MADV_REMOVE {
                let result = raw(number, &[super::readable_alias(start), a[1], a[2], 0, 0, 0])?;
                if result == 0 {
                    Here::new(ctx).kernel_store(number, start, len);
                }
                return Some(result);
            }
            raw(number, a)
        }
    }
}

fn mprotect(number: u64, a: &[u64; 6]) -> Option<i64> {
    let (start, len, prot) = (a[0], page_up(a[1]), a[2]);
    let end = start.wrapping_add(len);
    // The kernel judges the request as it stands, then the program's view is restricted again.
    let result = raw(number, a)?;
    if result != 0 {
        return Some(result);
    }
    let mut regions = REGIONS.lock();
    let cut = regions.remove(start, end);
    for r in cut {
        // SAFETY: our view and our alias of a tracked mapping.
        unsafe {
            sc!(
                nr::MPROTECT,
                r.start,
                r.end - r.start,
                regions::shown_prot(prot)
            );
            sc!(nr::MPROTECT, r.alias().get(), r.end - r.start, prot);
        }
        regions.insert(Region { prot, ..r });
    }
    regions.join();
    Some(0)
}

fn mremap(ctx: &mut ThreadContext, a: &[u64; 6]) -> Option<i64> {
    let [start, old, new, flags, to, _] = *a;
    let (old, new) = (page_up(old), page_up(new));
    let found = REGIONS
        .lock()
        .find(start)
        .copied()
        .filter(|r| start + old <= r.end);
    let Some(r) = found else {
        if flags & sys::MREMAP_FIXED != 0 && REGIONS.lock().find(start).is_none() {
            // Ordinary memory moves over tracked memory.
            let result = raw(nr::MREMAP, a)?;
            if result >= 0 {
                drop_regions(ctx, to, to + new);
            }
            return Some(result);
        }
        return Some(-sys::EFAULT);
    };
    if old == 0 || flags & !(sys::MREMAP_MAYMOVE | sys::MREMAP_FIXED) != 0 {
        crate::fatal_unsupported("the program duplicates a tracked mapping by mremap");
    }
    if start & 4095 != 0 || new == 0 {
        return Some(-sys::EINVAL);
    }
    if new <= old && flags & sys::MREMAP_FIXED == 0 {
        if new < old {
            drop_regions(ctx, start + new, start + old);
            // SAFETY: shrinks the program's view.
            unsafe { sc!(nr::MUNMAP, start + new, old - new) };
        }
        return Some(start as i64);
    }
    // Grow in place if the mapping ends here and nothing follows; else move.
    let fixed = flags & sys::MREMAP_FIXED != 0;
    let alias = r.delta.alias_of(ProgramAddr::new(start)).get();
    if !fixed
        && start + old == r.end
        && regions::steered_delta(start).is_some()
        && !REGIONS.lock().overlaps(r.end, start + new + (2 << 20))
    {
        // SAFETY: both views grow in ranges that nothing else uses; if one cannot, neither does.
        let grown = unsafe {
            let two = sc!(nr::MREMAP, alias, old, new, 0, 0) == alias as i64;
            let one = two && sc!(nr::MREMAP, start, old, new, 0, 0) == start as i64;
            if two && !one {
                sc!(nr::MUNMAP, alias + old, new - old);
            }
            one
        };
        if grown {
            let mut regions = REGIONS.lock();
            regions.remove(r.start, r.end);
            regions.insert(Region {
                end: start + new,
                ..r
            });
            drop(regions);
            event(ctx, rare::REMAP, [start, old, start, new, 0, 0], &[]);
            return Some(start as i64);
        }
    }
    if flags & sys::MREMAP_MAYMOVE == 0 {
        return Some(-sys::ENOMEM);
    }
    let mut regions = REGIONS.lock();
    let maps = crate::maps::read();
    let is_free = |at: u64| maps.iter().all(|m| m.end <= at || at + new <= m.start);
    let at = match fixed {
        true => Some(to),
        false => regions.places(new).find(|at| is_free(*at)),
    };
    let Some(at) = at else {
        return Some(-sys::ENOMEM);
    };
    let delta = regions::steered_delta(at).unwrap_or_else(|| regions.place_alias(at, new));
    drop(regions);
    let new_alias = delta.alias_of(ProgramAddr::new(at));
    clear_for_alias(new_alias, new);
    let move_flags = sys::MREMAP_MAYMOVE | sys::MREMAP_FIXED;
    // SAFETY: the program's view goes where it asked or where nothing is; the alias to a range of
    // ours.
    unsafe {
        let result = sc!(nr::MREMAP, start, old, new, move_flags, at);
        if result != at as i64 {
            return Some(result);
        }
        sc!(nr::MREMAP, alias, old, new, move_flags, new_alias.get());
    }
    if fixed {
        drop_regions(ctx, at, at + new);
    }
    let mut regions = REGIONS.lock();
    regions.remove(start, start + old);
    regions.insert(Region {
        start: at,
        end: at + new,
        delta,
        offset: r.offset + (start - r.start),
        ..r
    });
    drop(regions);
    event(ctx, rare::REMAP, [start, old, at, new, 0, 0], &[]);
    Some(at as i64)
}
