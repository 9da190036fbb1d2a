//! Before the call: pointers into PM become aliases.
//!
//! The invariant of every function here: if program memory that it needs cannot be read, it leaves
//! the argument as it was, so that the kernel finds the same bad pointer and answers for itself.

use crate::kind::{
    ArgKind, Bound, Dir, FieldLen, Layout, Nested, Out, Pointee, Reason, When, Wrote,
};
use crate::memory::{Memory, Translate, View};
use crate::prepared::{Extent, Pending, Prepared, Range};
use crate::scratch::Slot;
use crate::table::info;
use crate::unsupported::Unsupported;
use alloc::vec::Vec;

/// Buffers that lie partly in PM are copied for the call up to this size.
pub const BOUNCE_MAX: u64 = 1 << 20;

/// How far behind a pointer of unknown meaning memory is compared before and after the call.
pub const UNKNOWN_MAX: u64 = 64 << 10;

/// The most that one call transfers (the kernel's `MAX_RW_COUNT`).
const TRANSFER_MAX: u64 = 0x7fff_f000;

/// More `iovec`s than this (`UIO_MAXIOV`) are an error.
const IOV_MAX: u64 = 1024;

const PATH_MAX: u64 = 4096;

/// The longest string in `argv` or `envp` (`MAX_ARG_STRLEN`).
const TEXT_MAX: u64 = 128 << 10;

/// More strings than this do not fit the 6 MiB that the kernel allows them.
const STRINGS_MAX: usize = 3 << 20;

/// The kernel caps one submission at the context's size, which `aio-max-nr` caps at 64 Ki.
const IOCBS_MAX: u64 = 64 << 10;

/// How far a structure that holds its own length is looked at to see whether it is in PM.
const COUNTED_MAX: u64 = 64 << 10;

/// Rewrites the arguments of a call for the kernel: pointers into PM lead to the alias, structures
/// that hold such pointers are replaced by copies in `out`, which must live until the call returned
/// and [`finish`](crate::finish) was called.
///
/// Costs a table look-up and one or two [`Translate::alias_of`] a pointer if neither an argument
/// nor anything nested is in PM. Memory is read for nested structures only.
///
/// On [`Unsupported`] the arguments are as far rewritten as was possible; making the call and
/// finishing it is allowed.
#[inline]
pub fn prepare(
    nr: u64,
    args: &mut [u64; 6],
    t: &impl Translate,
    m: &impl Memory,
    out: &mut Prepared,
) -> Result<(), Unsupported> {
    out.begin(nr, args);
    let Some(row) = info(nr) else {
        return unknown_call(nr, args, t, m, out);
    };
    if row.pointers == 0 {
        return Ok(());
    }
    let decoded;
    let kinds = match row.selector {
        None => &row.args,
        Some(selector) => match selector.find(args) {
            Some(kinds) => kinds,
            None => {
                decoded = selector.fallback(args);
                &decoded
            }
        },
    };
    let quiet = |n: usize| match &kinds[n] {
        _ if args[n] == 0 => true,
        ArgKind::Value | ArgKind::Address => true,
        ArgKind::In(bound) | ArgKind::Retained(bound) | ArgKind::Out(Out { bound, .. }) => {
            is_outside(t, args[n], bound.cap(args))
        }
        ArgKind::Opaque => t.alias_of(args[n]).is_none(),
        ArgKind::Nested(_) => false,
    };
    if row.hazard.is_none() && (0..6).all(quiet) {
        return Ok(());
    }
    let mut call = Call {
        view: View { t, m },
        out,
        trouble: row.hazard,
    };
    for (n, kind) in kinds.iter().enumerate() {
        call.argument(n, *kind, args);
    }
    match call.trouble {
        None => Ok(()),
        Some(reason) => Err(Unsupported { nr, reason }),
    }
}

#[inline]
fn is_outside(t: &impl Translate, addr: u64, len: u64) -> bool {
    if len == 0 {
        return true;
    }
    let run = t.run(addr, len);
    run.alias.is_none() && run.len >= len
}

/// A call without a row: whatever is an address in PM may be a pointer.
#[cold]
fn unknown_call(
    nr: u64,
    args: &mut [u64; 6],
    t: &impl Translate,
    m: &impl Memory,
    out: &mut Prepared,
) -> Result<(), Unsupported> {
    let mut call = Call {
        view: View { t, m },
        out,
        trouble: None,
    };
    for n in 0..6 {
        call.argument(n, ArgKind::Opaque, args);
    }
    if call.out.is_idle() {
        Ok(())
    } else {
        Err(Unsupported {
            nr,
            reason: Reason::UnknownCall,
        })
    }
}

impl Bound {
    /// The bound as far as the arguments alone tell it: never less than [`Bound::exact`], except
    /// for structures beyond any size that the kernel knows.
    fn cap(self, args: &[u64; 6]) -> u64 {
        let int = |n: u8| u64::try_from(args[n as usize] as i32).unwrap_or(0);
        let bytes = match self {
            Bound::Bytes(n) => n.into(),
            Bound::Len(n) | Bound::Transfer(n) => args[n as usize],
            Bound::LenPlus(n, plus) => args[n as usize].saturating_add(plus.into()),
            Bound::Items(n, size) => args[n as usize].saturating_mul(size.into()),
            Bound::IntLen(n) => int(n),
            Bound::IntItems(n, size) => int(n) * u64::from(size),
            Bound::FdSet(n) => int(n).div_ceil(64) * 8,
            Bound::Pages(n) => args[n as usize].div_ceil(4096),
            Bound::NodeMask(n) => (args[n as usize] / 64).saturating_mul(8).saturating_add(8),
            Bound::SockLen(_) => 4096,
            Bound::Counted { .. } => COUNTED_MAX,
            Bound::Path => PATH_MAX,
            Bound::Text => TEXT_MAX,
        };
        bytes.min(TRANSFER_MAX)
    }

    /// The bound, looking at memory where it says so.
    fn exact<T: Translate, M: Memory>(
        self,
        view: &View<'_, T, M>,
        args: &[u64; 6],
        addr: u64,
    ) -> Option<u64> {
        match self {
            Bound::SockLen(n) => {
                let len = view.read_u32(args[n as usize])?;
                Some(u64::try_from(len as i32).unwrap_or(0))
            }
            Bound::Counted {
                base,
                at,
                width,
                item,
            } => {
                let mut bytes = [0; 4];
                if !view.read(addr.wrapping_add(at.into()), &mut bytes[..width.into()]) {
                    return None;
                }
                let count = u64::from(u32::from_le_bytes(bytes));
                // The count itself is always read.
                Some((u64::from(base) + count * u64::from(item)).max(u64::from(at + width)))
            }
            Bound::Path => view.string_len(addr, PATH_MAX),
            Bound::Text => view.string_len(addr, TEXT_MAX),
            _ => Some(self.cap(args)),
        }
    }
}

/// Where the kernel finds a range of the program's memory.
enum Place {
    /// Where the program does.
    Same,
    /// At an alias.
    Alias(u64),
    /// In a copy.
    Copy(Slot),
    /// Nowhere as a whole: it crosses the border of PM and is too long for a copy.
    Nowhere,
    /// It cannot be read.
    Bad,
}

/// An array of `struct iovec` for the kernel.
struct Vector {
    addr: u64,
    count: u64,
}

/// What the kernel does with memory, at least.
#[derive(Clone, Copy, PartialEq)]
enum Access {
    Reads,
    Writes,
}

/// What the kernel does with the buffers of a [`Vector`].
#[derive(Clone, Copy)]
enum Buffers {
    /// Uses them now; `total` is the program address of the number of bytes, if not the result.
    Used {
        dir: Dir,
        when: When,
        total: Option<u64>,
    },
    /// Uses them after the call.
    Kept,
}

/// One call being prepared.
struct Call<'a, T, M> {
    view: View<'a, T, M>,
    out: &'a mut Prepared,
    trouble: Option<Reason>,
}

impl<T: Translate, M: Memory> Call<'_, T, M> {
    fn argument(&mut self, n: usize, kind: ArgKind, args: &mut [u64; 6]) {
        let addr = args[n];
        if addr == 0 {
            return;
        }
        let new = match kind {
            ArgKind::Value | ArgKind::Address => None,
            ArgKind::In(bound) => match self.bounded(addr, bound) {
                Some(len) => {
                    let len = self.shorten(bound, addr, len, args);
                    self.input(addr, len)
                }
                None => None,
            },
            ArgKind::Out(out) => match self.bounded(addr, out.bound) {
                Some(len) => {
                    let len = self.shorten(out.bound, addr, len, args);
                    self.written(addr, len, out)
                }
                None => None,
            },
            ArgKind::Retained(bound) => match self.bounded(addr, bound) {
                Some(len) => self.retain(addr, len),
                None => None,
            },
            ArgKind::Opaque => self.opaque(addr),
            ArgKind::Nested(nested) => self.nested(addr, nested, args),
        };
        if let Some(new) = new {
            args[n] = new;
        }
    }

    /// How much behind `addr` the kernel may touch, or none if none of it is PM.
    fn bounded(&mut self, addr: u64, bound: Bound) -> Option<u64> {
        let args = &self.out.args;
        if is_outside(self.view.t, addr, bound.cap(args)) {
            return None;
        }
        // What cannot be read the kernel cannot read either; still it gets the alias, in which it
        // may be able to write.
        let len = bound.exact(&self.view, args, addr).unwrap_or(1);
        let touches = self.view.touches_pm(addr, len);
        if touches && matches!(bound, Bound::Path | Bound::Text | Bound::Counted { .. }) {
            self.out.touch();
            self.out.self_ending.push(Range { addr, len });
        }
        touches.then_some(len)
    }

    /// Shortens a transfer that cannot be copied, because it is too long or not all there, to the
    /// part on one side of the border.
    fn shorten(&mut self, bound: Bound, addr: u64, len: u64, args: &mut [u64; 6]) -> u64 {
        let Bound::Transfer(n) = bound else {
            return len;
        };
        let run = self.view.t.run(addr, len);
        if run.len == len || (len <= BOUNCE_MAX && self.readable(addr, 1, len) == len) {
            return len;
        }
        args[n as usize] = run.len;
        run.len
    }

    fn place(&mut self, addr: u64, len: u64, access: Access) -> Place {
        if len == 0 {
            return Place::Same;
        }
        let run = self.view.t.run(addr, len);
        match run.alias {
            None if run.len >= len => Place::Same,
            Some(alias) if run.len >= len => Place::Alias(alias),
            _ if len > BOUNCE_MAX => Place::Nowhere,
            _ => self
                .stand_in(addr, len, access)
                .map_or(Place::Bad, Place::Copy),
        }
    }

    /// A copy of the program's memory in scratch memory.
    fn copy(&mut self, addr: u64, len: u64) -> Option<Slot> {
        self.out.touch();
        let slot = self.out.scratch.alloc(len as usize, addr);
        self.fill(slot, addr).then_some(slot)
    }

    fn fill(&self, slot: Slot, addr: u64) -> bool {
        slot.fill(|at, bytes| self.view.read(addr.wrapping_add(at as u64), bytes))
    }

    /// A copy for the kernel to use. Room that it is offered to write need not all be there: it
    /// seldom needs the whole.
    fn stand_in(&mut self, addr: u64, len: u64, access: Access) -> Option<Slot> {
        if access == Access::Reads {
            return self.copy(addr, len);
        }
        let there = self.readable(addr, 1, len);
        if there == 0 {
            return None;
        }
        self.out.touch();
        let slot = self.out.scratch.alloc(len as usize, addr);
        self.fill(slot.part(0, there as usize), addr)
            .then_some(slot)
    }

    /// How many of `count` items are there before memory that cannot be read.
    fn readable(&self, addr: u64, size: u64, count: u64) -> u64 {
        let mut byte = [0];
        // Pages are there or not as a whole, so the last byte in each is as good as all.
        let mut good = 0;
        let end = size * count;
        while good < end {
            let last = (addr.wrapping_add(good) | 4095).min(addr.wrapping_add(end - 1));
            if !self.view.read(last, &mut byte) {
                break;
            }
            good = last.wrapping_sub(addr) + 1;
        }
        good / size
    }

    fn note_read(&mut self, addr: u64, len: u64) {
        self.out.touch();
        let reads = &mut self.out.reads;
        self.view
            .pm_parts(addr, len, &mut |addr, len| reads.push(Range { addr, len }));
    }

    fn give_up(&mut self, reason: Reason) -> Option<u64> {
        self.trouble = self.trouble.or(Some(reason));
        None
    }

    /// Memory that the kernel reads. Returns what to tell the kernel instead of `addr`.
    fn input(&mut self, addr: u64, len: u64) -> Option<u64> {
        let new = match self.place(addr, len, Access::Reads) {
            Place::Same | Place::Bad => return None,
            Place::Alias(alias) => alias,
            Place::Copy(slot) => slot.addr(),
            Place::Nowhere => return self.give_up(Reason::Straddles),
        };
        self.note_read(addr, len);
        Some(new)
    }

    /// Memory that the kernel writes.
    fn output(&mut self, addr: u64, len: u64, extent: Extent, when: When) -> Option<u64> {
        let (new, via) = match self.place(addr, len, Access::Writes) {
            Place::Same | Place::Bad => return None,
            Place::Alias(alias) => (alias, None),
            Place::Copy(slot) => (slot.addr(), Some(slot)),
            Place::Nowhere => return self.give_up(Reason::Straddles),
        };
        // No more than is there can differ from what was there.
        let len = match extent {
            Extent::Changed(before) => before.len(),
            _ => len,
        };
        self.out.touch();
        self.out.pending.push(Pending {
            addr,
            len,
            extent,
            when,
            via,
        });
        Some(new)
    }

    /// Memory that the kernel writes in a way that only a comparison can tell.
    fn compared(&mut self, addr: u64, len: u64, when: When) -> Option<u64> {
        let there = self.readable(addr, 1, len);
        let before = self.copy(addr, there)?;
        self.output(addr, len, Extent::Changed(before), when)
    }

    fn written(&mut self, addr: u64, len: u64, out: Out) -> Option<u64> {
        if let When::SuccessWithFlag { now, later } = out.when {
            let flags = self.out.args[0] as u32;
            if flags & later != 0 {
                let new = self.retain(addr, len);
                if flags & now != 0 && new.is_some() {
                    self.output(addr, len, Extent::All, out.when);
                }
                return new;
            }
            if flags & now == 0 {
                return None;
            }
        }
        let extent = match out.wrote {
            Wrote::All => Extent::All,
            Wrote::Result(unit) => Extent::Result { plus: 0, unit },
            Wrote::ResultPlus(plus) => Extent::Result { plus, unit: 1 },
            Wrote::SockLen(n) => Extent::Len32(self.out.args[n as usize]),
            Wrote::Field(item, at, len) => Extent::Field { item, at, len },
            Wrote::WaitInfo => Extent::WaitInfo,
            Wrote::Changed => {
                let new = self.compared(addr, len, out.when);
                if new.is_some() && out.reads {
                    self.note_read(addr, len);
                }
                return new;
            }
        };
        let new = self.output(addr, len, extent, out.when);
        if new.is_some() && out.reads {
            self.note_read(addr, len);
        }
        new
    }

    /// Memory whose address the kernel keeps: no copy can stand in for it.
    fn retain(&mut self, addr: u64, len: u64) -> Option<u64> {
        let run = self.view.t.run(addr, len);
        match run.alias {
            None if run.len >= len => None,
            Some(alias) if run.len >= len => {
                self.out.touch();
                self.out.retained.push(Range { addr, len });
                Some(alias)
            }
            _ => self.give_up(Reason::Straddles),
        }
    }

    fn opaque(&mut self, addr: u64) -> Option<u64> {
        let run = self.view.t.run(addr, UNKNOWN_MAX);
        let alias = run.alias?;
        self.out.touch();
        self.out.unknown.push(Range { addr, len: run.len });
        self.note_read(addr, run.len);
        self.compared(addr, run.len, When::Always);
        Some(alias)
    }

    fn nested(&mut self, addr: u64, nested: Nested, args: &mut [u64; 6]) -> Option<u64> {
        match nested {
            Nested::RemoteIov { count, .. } if !self.view.t.is_self(args[0] as i32) => {
                self.input(addr, args[count as usize].min(IOV_MAX) * 16)
            }
            Nested::Iov { count, dir } | Nested::RemoteIov { count, dir } => {
                let buffers = Buffers::Used {
                    dir,
                    when: When::Success,
                    total: None,
                };
                let vector = self.iov(addr, args[count as usize], buffers)?;
                args[count as usize] = vector.count;
                Some(vector.addr)
            }
            Nested::Struct(layout) => self.structures(addr, layout, 1, false),
            Nested::Fixed { layout, count } => self.structures(addr, layout, count.into(), false),
            Nested::Array {
                layout,
                count: at,
                max,
                partial,
            } => {
                let mut count = u64::from(args[at as usize] as u32).min(max.into());
                if partial {
                    // What the kernel would stop at it must not find in place of our copy.
                    count = self.readable(addr, layout.size.into(), count);
                }
                let new = self.structures(addr, layout, count, partial)?;
                args[at as usize] = count;
                Some(new)
            }
            Nested::Strings => self.strings(addr),
            Nested::Iocbs { count: at } => {
                let count = self.readable(addr, 8, args[at as usize].min(IOCBS_MAX));
                let new = self.iocbs(addr, count)?;
                args[at as usize] = count;
                Some(new)
            }
            Nested::IoEvents { count } => {
                self.out.touch();
                self.out.events = Some(addr);
                let len = args[count as usize].min(IOCBS_MAX) * 32;
                self.output(
                    addr,
                    len,
                    Extent::Result { plus: 0, unit: 32 },
                    When::Success,
                )
            }
            Nested::Attributes { bound, wrote } => {
                let len = bound.cap(args).min(COUNTED_MAX);
                if self.hides_pointer(addr, len) {
                    self.give_up(Reason::HiddenPointer);
                }
                match wrote {
                    None => self.input(addr, len),
                    Some(_) if !self.view.touches_pm(addr, len) => None,
                    Some(wrote) => {
                        let when = match wrote {
                            Wrote::Changed => When::Always,
                            _ => When::Success,
                        };
                        self.written(
                            addr,
                            len,
                            Out {
                                bound,
                                wrote,
                                when,
                                reads: true,
                            },
                        )
                    }
                }
            }
        }
    }

    /// Whether a structure of unknown layout holds an address in PM. PM has addresses of its own,
    /// so a number is hardly ever taken for one.
    fn hides_pointer(&self, addr: u64, len: u64) -> bool {
        let mut word = [0; 8];
        let mut piece = [0; 128];
        let mut at = 0;
        while at + 8 <= len {
            let take = (len - at).min(128) / 8 * 8;
            let bytes = &mut piece[..take as usize];
            if !self.view.read(addr.wrapping_add(at), bytes) {
                return false;
            }
            for chunk in bytes.chunks_exact(8) {
                word.copy_from_slice(chunk);
                if self.view.t.alias_of(u64::from_le_bytes(word)).is_some() {
                    return true;
                }
            }
            at += take;
        }
        false
    }

    /// An array of `struct iovec`. Buffers that lie partly in PM are split, not copied: there may
    /// be more of them than before.
    fn iov(&mut self, addr: u64, count: u64, buffers: Buffers) -> Option<Vector> {
        if count == 0 || count > IOV_MAX {
            return None;
        }
        let array = self.copy(addr, count * 16)?;
        let mut pieces = Vec::new();
        let mut start = 0;
        let mut changed = false;
        for at in (0..count as usize * 16).step_by(16) {
            let (mut base, len) = (array.u64(at), array.u64(at + 8));
            // A length that the kernel refuses, or cuts, is passed on as it is.
            let mut left = len.min(TRANSFER_MAX - start);
            let mut rest = len - left;
            while left > 0 {
                let run = self.view.t.run(base, left);
                let new = match run.alias {
                    None => base,
                    Some(alias) => {
                        self.buffer(base, run.len, start, buffers);
                        changed = true;
                        alias
                    }
                };
                left -= run.len;
                start += run.len;
                let len = if left == 0 {
                    run.len + core::mem::take(&mut rest)
                } else {
                    run.len
                };
                pieces.push((new, len));
                base = base.wrapping_add(run.len);
            }
            if rest > 0 || len == 0 {
                pieces.push((base, rest));
            }
        }
        if !changed {
            return self
                .input(addr, count * 16)
                .map(|addr| Vector { addr, count });
        }
        if pieces.len() as u64 > IOV_MAX {
            self.give_up(Reason::Straddles);
            return None;
        }
        self.note_read(addr, count * 16);
        let copy = self.out.scratch.alloc(pieces.len() * 16, addr);
        for (n, (base, len)) in pieces.iter().enumerate() {
            copy.set_u64(n * 16, *base);
            copy.set_u64(n * 16 + 8, *len);
        }
        Some(Vector {
            addr: copy.addr(),
            count: pieces.len() as u64,
        })
    }

    /// Notes what happens to a buffer in PM that `start` bytes of other buffers come before.
    fn buffer(&mut self, addr: u64, len: u64, start: u64, buffers: Buffers) {
        match buffers {
            Buffers::Kept => self.out.retained.push(Range { addr, len }),
            Buffers::Used { dir: Dir::Read, .. } => self.note_read(addr, len),
            Buffers::Used {
                dir: Dir::Either,
                when,
                ..
            } if len <= BOUNCE_MAX => {
                self.note_read(addr, len);
                self.compared(addr, len, when);
            }
            Buffers::Used { when, total, .. } => {
                self.output(addr, len, Extent::Window { start, total }, when);
            }
        }
    }

    /// One structure with pointers, or an array of them of which the result says how many count.
    fn structures(
        &mut self,
        addr: u64,
        layout: &'static Layout,
        count: u64,
        counted: bool,
    ) -> Option<u64> {
        let size = u64::from(layout.size);
        if count == 0 {
            return None;
        }
        let copy = self.copy(addr, size * count)?;
        let mut changed = false;
        for index in 0..count {
            let item = copy.part((index * size) as usize, size as usize);
            let base = addr.wrapping_add(index * size);
            changed |= self.pointers(item, base, layout, item_when(index, counted));
        }
        let (new, via) = if changed {
            (copy.addr(), true)
        } else {
            match self.place(addr, size * count, Access::Reads) {
                Place::Same | Place::Bad => return None,
                Place::Alias(alias) => (alias, false),
                Place::Copy(_) | Place::Nowhere => (copy.addr(), true),
            }
        };
        self.note_read(addr, size * count);
        for index in 0..count {
            for &(at, len, pointer) in layout.outputs {
                let at = index * size + u64::from(at);
                let present = |p: u8| copy.u64((index * size) as usize + usize::from(p)) != 0;
                if pointer.is_none_or(present) {
                    self.out.pending.push(Pending {
                        addr: addr.wrapping_add(at),
                        len: len.into(),
                        extent: Extent::All,
                        when: item_when(index, counted),
                        via: via.then(|| copy.part(at as usize, len.into())),
                    });
                }
            }
        }
        Some(new)
    }

    /// Rewrites the pointers in the copy of a structure; whether any was.
    fn pointers(&mut self, item: Slot, base: u64, layout: &Layout, when: When) -> bool {
        if layout
            .guard
            .is_some_and(|(at, value)| item.u32(at.into()) != value)
        {
            return false;
        }
        let field_len = |len: &FieldLen| match *len {
            FieldLen::Bytes(n) => u64::from(n),
            FieldLen::U16(at, unit) => u64::from(item.u16(at.into())) * u64::from(unit),
            // A negative length is an error, which the kernel finds before it touches anything.
            FieldLen::U32(at) => u64::try_from(item.u32(at.into()) as i32).unwrap_or(0),
            FieldLen::U64(at) => item.u64(at.into()).min(TRANSFER_MAX),
        };
        let mut changed = false;
        for field in layout.pointers {
            let pointer = item.u64(field.at.into());
            if pointer == 0 {
                continue;
            }
            let new = match &field.to {
                Pointee::In(len) => self.input(pointer, field_len(len)),
                Pointee::OutLen(len) => {
                    let extent = match *len {
                        FieldLen::U32(at) => Extent::Len32(base.wrapping_add(at.into())),
                        FieldLen::U64(at) => Extent::Len64(base.wrapping_add(at.into())),
                        FieldLen::Bytes(_) | FieldLen::U16(..) => Extent::All,
                    };
                    self.output(pointer, field_len(len), extent, when)
                }
                Pointee::OutResult(len) => self.output(
                    pointer,
                    field_len(len),
                    Extent::Result { plus: 0, unit: 1 },
                    when,
                ),
                Pointee::Iov { count, dir, total } => {
                    let total = total.map(|at| base.wrapping_add(at.into()));
                    let buffers = Buffers::Used {
                        dir: *dir,
                        when,
                        total,
                    };
                    let at = usize::from(*count);
                    self.iov(pointer, item.u64(at), buffers).map(|vector| {
                        item.set_u64(at, vector.count);
                        vector.addr
                    })
                }
            };
            if let Some(new) = new {
                item.set_u64(field.at.into(), new);
                changed = true;
            }
        }
        changed
    }

    /// Pointers up to and with a null one.
    fn pointer_list(&self, addr: u64) -> Option<Vec<u64>> {
        let mut list = Vec::new();
        let mut piece = [0; 512];
        while list.len() < STRINGS_MAX {
            let at = addr.wrapping_add(list.len() as u64 * 8);
            // Whole pointers, and not past the page: the next one may be missing.
            let take = ((4096 - at % 4096) / 8 * 8).clamp(8, 512) as usize;
            if !self.view.read(at, &mut piece[..take]) {
                return None;
            }
            for word in piece[..take].chunks_exact(8) {
                let pointer = word
                    .iter()
                    .rfold(0, |value, byte| value << 8 | u64::from(*byte));
                list.push(pointer);
                if pointer == 0 {
                    return Some(list);
                }
            }
        }
        None
    }

    /// `argv` or `envp`.
    fn strings(&mut self, addr: u64) -> Option<u64> {
        let mut pointers = self.pointer_list(addr)?;
        let mut changed = false;
        for pointer in pointers.iter_mut().filter(|pointer| **pointer != 0) {
            let Some(len) = self.bounded(*pointer, Bound::Text) else {
                continue;
            };
            if let Some(new) = self.input(*pointer, len) {
                *pointer = new;
                changed = true;
            }
        }
        let len = pointers.len() as u64 * 8;
        if !changed && len <= BOUNCE_MAX {
            return self.input(addr, len);
        }
        if !changed && !self.view.touches_pm(addr, len) {
            return None;
        }
        self.note_read(addr, len);
        let slot = self.out.scratch.alloc(len as usize, addr);
        for (n, pointer) in pointers.into_iter().enumerate() {
            slot.set_u64(n * 8, pointer);
        }
        Some(slot.addr())
    }

    /// Changes a word of the program's memory for the time of the call.
    fn patch(&mut self, addr: u64, old: u64, new: u64) {
        if old != new && self.view.write(addr, &new.to_le_bytes()) {
            self.out.patches.push((addr, old));
        }
    }

    /// The `struct iocb *` array of `io_submit`.
    ///
    /// The kernel hands the address of each `iocb` back with its event, so those are not replaced
    /// by copies: their buffer address is changed in place for the time of the call, which is when
    /// the kernel reads it.
    fn iocbs(&mut self, addr: u64, count: u64) -> Option<u64> {
        let array = self.copy(addr, count * 8)?;
        let mut changed = false;
        for index in 0..count {
            let at = index as usize * 8;
            let iocb = array.u64(at);
            let Some(copy) = self.copy(iocb, 64) else {
                continue;
            };
            let (opcode, buf, bytes) = (copy.u16(16), copy.u64(24), copy.u64(32));
            let bytes = bytes.min(TRANSFER_MAX);
            let new = match opcode {
                IOCB_PREAD => self.retain(buf, bytes).map(|addr| (addr, bytes)),
                IOCB_PWRITE => {
                    self.note_read(buf, bytes);
                    self.retain(buf, bytes).map(|addr| (addr, bytes))
                }
                IOCB_PREADV | IOCB_PWRITEV => self
                    .iov(buf, bytes, Buffers::Kept)
                    .map(|vector| (vector.addr, vector.count)),
                _ => None,
            };
            if let Some((new_buf, new_bytes)) = new {
                self.patch(iocb.wrapping_add(24), buf, new_buf);
                self.patch(iocb.wrapping_add(32), copy.u64(32), new_bytes);
            }
            // The kernel marks each `iocb` that it accepted.
            match self.view.t.run(iocb, 64) {
                run if run.alias.is_none() && run.len >= 64 => {}
                run if run.len >= 64 => {
                    array.set_u64(at, run.alias.unwrap_or(iocb));
                    changed = true;
                    self.note_read(iocb, 64);
                    self.out.pending.push(Pending {
                        addr: iocb.wrapping_add(8),
                        len: 4,
                        extent: Extent::All,
                        when: When::MoreThan(index as u16),
                        via: None,
                    });
                }
                _ => {
                    self.give_up(Reason::Straddles);
                }
            }
        }
        if !changed {
            return self.input(addr, count * 8);
        }
        self.note_read(addr, count * 8);
        Some(array.addr())
    }
}

/// Opcodes of `struct iocb`.
pub(crate) const IOCB_PREAD: u16 = 0;
const IOCB_PWRITE: u16 = 1;
pub(crate) const IOCB_PREADV: u16 = 7;
const IOCB_PWRITEV: u16 = 8;

fn item_when(index: u64, counted: bool) -> When {
    if counted {
        When::MoreThan(index as u16)
    } else {
        When::Success
    }
}
