//! The payload of one block: how a run of events becomes a few columns of bytes, and back.
//!
//! Guarantee: a payload decodes without any other payload, every event comes back equal to what
//! was encoded, and decoding arbitrary bytes yields events or an error, never a panic and never
//! more memory than a small multiple of the payload.
//!
//! ```text
//! payload := site_count  length of each column          (varints)
//!            site table: threads  pcs  contexts  tags  details     (one column each)
//!            codes  controls  addresses  values  fields  bytes     (the six event columns)
//! ```
//!
//! * A **site** is everything about an event that repeats: thread, pc, context, and its *shape*
//!   (kind, whether values were recorded, and a detail such as the access size).
//! * **codes**: per event 0 if its site is the one that followed the previous site last time, else
//!   the site's number plus 1 as a varint. Loops therefore become runs of zeros, and the encoder
//!   skips its hash look-up for them.
//! * **controls**: one byte an event. The low nibble tells the length of the address residual and
//!   what it is relative to, the high nibble the same for the value ([`Guess`]).
//! * **addresses**: the residual against the better of two guesses: *same distance from the
//!   previous event's address as last time at this site* (fields of an object, walks with a
//!   stride, the flush after its store) or *same address as last time at this site* (a counter, a
//!   log head).
//! * **values** of at most 8 bytes: the difference to the site's last value, or the value itself.
//! * **fields**: the other numbers of the rarer kinds, as zigzag varint differences to the site's
//!   last ones.
//! * **bytes**: strings, and values of more than 8 bytes.
//!
//! Columns, because zstd finds far more in bytes of one meaning side by side.

use brownout_kinds::event_kinds;

use crate::event::{
    Access, ContextId, Elements, Event, EventKind, ExitStatus, FenceKind, FileId, FlushKind,
    NameChange, PmReason, ProcessId, TargetAddr, ThreadId,
};

/// Events that a block may hold at most. Bounds the reader's site table.
pub(crate) const EVENTS_PER_BLOCK_MAX: u32 = 1 << 18;

/// Accesses up to this size have it in their shape; a larger one is a field, or a program that
/// copies varying lengths would make a site of each.
const SIZE_IN_SHAPE_MAX: u32 = 64;
const SIZE_IN_FIELD: u32 = u32::MAX;

/// Where two fields share the detail, the second is this bit.
const HIGH_DETAIL: u32 = 1 << 8;

/// Longest row of fields (`Map` and `Annotation`), and room for the size of a long access behind
/// them.
const FIELDS_MAX: usize = 6;

/// Why an event cannot be encoded: it breaks the contract of [`Access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValueLengthMismatch;

// ---------------------------------------------------------------------------------------------
// Shapes

/// What follows the site in the columns, per tag.
#[derive(Clone, Copy)]
struct Layout {
    /// There is such a tag.
    known: bool,
    /// Has an address column entry.
    addr: bool,
    /// Number of fields.
    fields: u8,
    /// What is in the bytes column.
    bytes: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bytes {
    Never,
    /// As many as the access is long, if values were recorded.
    Access,
    /// As many as the last field says.
    Counted,
}

/// One method for each place of a field that the table of kinds names; `T` is the field's type.
#[allow(
    clippy::extra_unused_type_parameters,
    reason = "the table of kinds calls them all alike; only `args` wants to know"
)]
impl Layout {
    const UNKNOWN: Layout = Layout {
        known: false,
        addr: false,
        fields: 0,
        bytes: Bytes::Never,
    };
    const EMPTY: Layout = Layout {
        known: true,
        ..Layout::UNKNOWN
    };

    const fn addr<T>(self) -> Layout {
        Layout { addr: true, ..self }
    }
    const fn detail<T>(self) -> Layout {
        self
    }
    const fn low_detail<T>(self) -> Layout {
        self
    }
    const fn high_detail<T>(self) -> Layout {
        self
    }
    const fn field<T>(self) -> Layout {
        Layout {
            fields: self.fields + 1,
            ..self
        }
    }
    const fn status<T>(self) -> Layout {
        self.field::<T>()
    }
    /// The first is the address.
    const fn args<T>(self) -> Layout {
        Layout {
            addr: true,
            fields: self.fields + (size_of::<T>() / 8 - 1) as u8,
            ..self
        }
    }
    /// The last field is its length.
    const fn text<T>(self) -> Layout {
        Layout {
            fields: self.fields + 1,
            bytes: Bytes::Counted,
            ..self
        }
    }
    /// In the detail, or behind the fields if it does not fit there.
    const fn size<T>(self) -> Layout {
        self
    }
    const fn values<T>(self) -> Layout {
        Layout {
            bytes: Bytes::Access,
            ..self
        }
    }
    const fn access<T>(self) -> Layout {
        self.addr::<T>().values::<T>()
    }
}

/// What the codec makes of the table of kinds: tags, layouts, and how the rarer kinds are taken
/// apart and put together.
macro_rules! define_codec {
    (
        ring {
            $(
                $(#[$_doc:meta])*
                $tag:literal $TAG:ident ring $_ring:literal $_name:literal $Kind:ident
                $({ $( $(#[$_field_doc:meta])* $field:ident: $ty:ty = $place:ident, $_how:ident $_member:literal; )* })?
            )*
        }
        other {
            $(
                $(#[$_other_doc:meta])*
                $other_tag:literal $OTHER_TAG:ident $_other_name:literal $Other:ident
                { $( $(#[$_other_field_doc:meta])* $other_field:ident: $other_ty:ty = $other_place:ident, $_other_how:ident $_other_member:literal; )* }
            )*
        }
    ) => {
        /// Kind of event on disk. Numbers are part of the format: add at the end, never reuse.
        mod tag {
            pub const STORE: u8 = 0;
            pub const NT_STORE: u8 = 1;
            pub const LOAD: u8 = 2;
            pub const RMW: u8 = 3;
            pub const CLFLUSH: u8 = 5;
            pub const CLFLUSHOPT: u8 = 6;
            pub const CLWB: u8 = 7;
            pub const SFENCE: u8 = 8;
            pub const MFENCE: u8 = 9;
            pub const LOCKED: u8 = 10;
            $( pub const $OTHER_TAG: u8 = $other_tag; )*
            $( pub const $TAG: u8 = $tag; )*
            /// As many as there are, since none is left out.
            pub const COUNT: u8 = 10 $( + { let _ = $OTHER_TAG; 1 } )* $( + { let _ = $TAG; 1 } )*;
        }

        #[allow(clippy::extra_unused_lifetimes, reason = "types of fields are spelled with it")]
        const fn layouts<'a>() -> [Layout; tag::COUNT as usize] {
            let access = Layout::EMPTY.access::<Access<'a>>();
            let flush = Layout::EMPTY.addr::<TargetAddr>();
            let rows = [
                (tag::STORE, access),
                (tag::NT_STORE, access),
                (tag::LOAD, access),
                (tag::RMW, access),
                (tag::CLFLUSH, flush),
                (tag::CLFLUSHOPT, flush),
                (tag::CLWB, flush),
                (tag::SFENCE, Layout::EMPTY),
                (tag::MFENCE, Layout::EMPTY),
                (tag::LOCKED, Layout::EMPTY),
                $( (tag::$OTHER_TAG, Layout::EMPTY $( .$other_place::<$other_ty>() )*), )*
                $( (tag::$TAG, Layout::EMPTY $($( .$place::<$ty>() )*)?), )*
            ];
            let mut layouts = [Layout::UNKNOWN; tag::COUNT as usize];
            let mut nth = 0;
            while nth < rows.len() {
                let (tag, layout) = rows[nth];
                assert!(!layouts[tag as usize].known, "two kinds have the same tag");
                // A row has room for one more: the size of a long access.
                assert!((layout.fields as usize) < FIELDS_MAX, "a kind has too many fields");
                layouts[tag as usize] = layout;
                nth += 1;
            }
            layouts
        }

        /// Takes one of the rarer kinds apart. Returns its tag.
        #[inline(always)]
        fn take_apart<'a>(kind: &EventKind<'a>, parts: &mut Parts<'a>) -> u8 {
            match *kind {
                EventKind::Store(_)
                | EventKind::NtStore(_)
                | EventKind::Load(_)
                | EventKind::Rmw(_)
                | EventKind::Flush { .. }
                | EventKind::Fence(_) => unreachable!("`push` has taken the frequent kinds"),
                $( EventKind::$Other { $( $other_field, )* } => {
                    $( parts.$other_place($other_field); )*
                    tag::$OTHER_TAG
                } )*
                $( EventKind::$Kind { $($( $field, )*)? } => {
                    $($( parts.$place($field); )*)?
                    tag::$TAG
                } )*
            }
        }

        /// Puts one of the rarer kinds together.
        #[inline(always)]
        fn put_together<'a>(tag: u8, found: &mut Found<'a>) -> Result<EventKind<'a>, Fault> {
            Ok(match tag {
                $( tag::$OTHER_TAG => EventKind::$Other { $( $other_field: found.$other_place()?, )* }, )*
                $( tag::$TAG => EventKind::$Kind { $($( $field: found.$place()?, )*)? }, )*
                _ => return Err("it has an event of unknown kind"),
            })
        }
    };
}

event_kinds!(define_codec);

const LAYOUTS: [Layout; tag::COUNT as usize] = layouts();

/// A field that is one number.
trait Number: Sized {
    fn number(self) -> u64;
    /// From the number, if it is one of this type.
    fn from_number(number: u64) -> Result<Self, Fault>;
}

impl Number for u64 {
    #[inline(always)]
    fn number(self) -> u64 {
        self
    }
    #[inline(always)]
    fn from_number(number: u64) -> Result<u64, Fault> {
        Ok(number)
    }
}

impl Number for i64 {
    fn number(self) -> u64 {
        self as u64
    }
    fn from_number(number: u64) -> Result<i64, Fault> {
        Ok(number as i64)
    }
}

impl Number for u32 {
    #[inline(always)]
    fn number(self) -> u64 {
        u64::from(self)
    }
    #[inline(always)]
    fn from_number(number: u64) -> Result<u32, Fault> {
        field_u32(number)
    }
}

impl Number for i32 {
    fn number(self) -> u64 {
        u64::from(self as u32)
    }
    fn from_number(number: u64) -> Result<i32, Fault> {
        Ok(field_u32(number)? as i32)
    }
}

impl Number for bool {
    fn number(self) -> u64 {
        u64::from(self)
    }
    fn from_number(number: u64) -> Result<bool, Fault> {
        Ok(number != 0)
    }
}

impl Number for TargetAddr {
    #[inline(always)]
    fn number(self) -> u64 {
        self.0
    }
    #[inline(always)]
    fn from_number(number: u64) -> Result<TargetAddr, Fault> {
        Ok(TargetAddr(number))
    }
}

macro_rules! numbered {
    ($($id:ident)*) => { $(
        impl Number for $id {
            #[inline(always)]
            fn number(self) -> u64 {
                u64::from(self.0)
            }
            #[inline(always)]
            fn from_number(number: u64) -> Result<$id, Fault> {
                field_u32(number).map($id)
            }
        }
    )* };
}
numbered!(FileId ProcessId ThreadId ContextId);

impl Number for PmReason {
    fn number(self) -> u64 {
        self as u64
    }
    fn from_number(number: u64) -> Result<PmReason, Fault> {
        PmReason::from_number(number).ok_or("a file is tracked for an unknown reason")
    }
}

impl Number for NameChange {
    fn number(self) -> u64 {
        self as u64
    }
    fn from_number(number: u64) -> Result<NameChange, Fault> {
        NameChange::from_number(number).ok_or("a name has changed in an unknown way")
    }
}

impl Number for Elements {
    fn number(self) -> u64 {
        u64::from(self.code())
    }
    fn from_number(number: u64) -> Result<Elements, Fault> {
        Elements::from_code(field_u32(number)?).ok_or("a store has elements of an unknown kind")
    }
}

/// What one of the rarer kinds consists of. One method for each place of a field that the table of
/// kinds names.
#[derive(Default)]
struct Parts<'a> {
    detail: u32,
    addr: u64,
    fields: [u64; FIELDS_MAX],
    fields_len: usize,
    size: u32,
    bytes: &'a [u8],
}

#[allow(
    clippy::inline_always,
    reason = "each is a store or two, and the table of kinds becomes one function"
)]
impl<'a> Parts<'a> {
    #[inline(always)]
    fn addr(&mut self, addr: TargetAddr) {
        self.addr = addr.0;
    }
    #[inline(always)]
    fn detail(&mut self, detail: impl Number) {
        self.detail = detail.number() as u32;
    }
    #[inline(always)]
    fn low_detail(&mut self, detail: impl Number) {
        self.detail |= detail.number() as u32;
    }
    #[inline(always)]
    fn high_detail(&mut self, flag: bool) {
        self.detail |= if flag { HIGH_DETAIL } else { 0 };
    }
    #[inline(always)]
    fn field(&mut self, field: impl Number) {
        self.fields[self.fields_len] = field.number();
        self.fields_len += 1;
    }
    #[inline(always)]
    fn status(&mut self, status: ExitStatus) {
        let (how, number) = status_parts(status);
        self.detail = how;
        self.field(number);
    }
    #[inline(always)]
    fn args<const N: usize>(&mut self, args: [u64; N]) {
        self.addr = args[0];
        for arg in &args[1..] {
            self.field(*arg);
        }
    }
    #[inline(always)]
    fn text(&mut self, text: &'a [u8]) {
        self.bytes = text;
    }
    #[inline(always)]
    fn size(&mut self, size: u32) {
        self.size = size;
    }
    #[inline(always)]
    fn values(&mut self, values: &'a [u8]) {
        self.bytes = values;
    }
    #[inline(always)]
    fn access(&mut self, access: Access<'a>) {
        self.addr(access.addr);
        self.size(access.size);
        self.values(access.bytes);
    }
}

/// The reverse of [`Parts`]: what was found of an event, for the fields in their order.
struct Found<'a> {
    detail: u32,
    addr: TargetAddr,
    fields: [u64; FIELDS_MAX],
    fields_taken: usize,
    size: u32,
    bytes: &'a [u8],
}

#[allow(
    clippy::inline_always,
    clippy::unnecessary_wraps,
    reason = "as in `Parts`; the table of kinds calls them all alike"
)]
impl<'a> Found<'a> {
    #[inline(always)]
    fn addr(&mut self) -> Result<TargetAddr, Fault> {
        Ok(self.addr)
    }
    #[inline(always)]
    fn detail<T: Number>(&mut self) -> Result<T, Fault> {
        T::from_number(u64::from(self.detail))
    }
    #[inline(always)]
    fn low_detail<T: Number>(&mut self) -> Result<T, Fault> {
        T::from_number(u64::from(self.detail & !HIGH_DETAIL))
    }
    #[inline(always)]
    fn high_detail(&mut self) -> Result<bool, Fault> {
        Ok(self.detail & HIGH_DETAIL != 0)
    }
    #[inline(always)]
    fn field<T: Number>(&mut self) -> Result<T, Fault> {
        let field = self.fields[self.fields_taken];
        self.fields_taken += 1;
        T::from_number(field)
    }
    #[inline(always)]
    fn status(&mut self) -> Result<ExitStatus, Fault> {
        let number = self.field()?;
        status_from(self.detail, number)
    }
    #[inline(always)]
    fn args<const N: usize>(&mut self) -> Result<[u64; N], Fault> {
        let mut args = [self.addr.0; N];
        for arg in &mut args[1..] {
            *arg = self.field()?;
        }
        Ok(args)
    }
    #[inline(always)]
    fn text(&mut self) -> Result<&'a [u8], Fault> {
        Ok(self.bytes)
    }
    #[inline(always)]
    fn size(&mut self) -> Result<u32, Fault> {
        Ok(self.size)
    }
    #[inline(always)]
    fn values(&mut self) -> Result<&'a [u8], Fault> {
        Ok(self.bytes)
    }
    #[inline(always)]
    fn access(&mut self) -> Result<Access<'a>, Fault> {
        Ok(Access {
            addr: self.addr,
            size: self.size,
            bytes: self.bytes,
        })
    }
}

/// `tag | values << 7 | detail << 8`, so that comparing a shape is one comparison.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Shape(u64);

impl Shape {
    const VALUES: u8 = 0x80;

    #[inline(always)]
    const fn new(tag: u8, values: bool, detail: u32) -> Shape {
        Shape(tag as u64 | (values as u64) << 7 | (detail as u64) << 8)
    }

    #[inline(always)]
    fn tag(self) -> u8 {
        self.0 as u8 & !Self::VALUES
    }

    #[inline(always)]
    fn values(self) -> bool {
        self.0 as u8 & Self::VALUES != 0
    }

    #[inline(always)]
    fn detail(self) -> u32 {
        (self.0 >> 8) as u32
    }

    /// The value goes to the values column instead of the bytes column.
    #[inline(always)]
    fn value_is_word(self) -> bool {
        self.tag() <= tag::RMW && self.values() && self.detail() <= 8
    }

    /// The size is a field, because it does not fit the detail.
    #[inline(always)]
    fn size_is_field(self) -> bool {
        self.detail() == SIZE_IN_FIELD && LAYOUTS[self.tag() as usize].bytes == Bytes::Access
    }
}

/// A site of the current block with what its last event left behind for the next guess.
/// Encoder and decoder keep the same state; that is what makes the residuals reversible.
#[derive(Clone, Copy)]
struct Site {
    pc: u64,
    /// `context << 32 | thread`
    who: u64,
    shape: Shape,
    addr_last: u64,
    /// Distance of the last address from the address of the event before.
    distance_last: u64,
    value_last: u64,
    /// The site that came after this one last time.
    successor: u32,
    /// Row in the table of last fields; `u32::MAX` before the first.
    fields_row: u32,
}

impl Site {
    fn new(pc: u64, who: u64, shape: Shape) -> Site {
        Site {
            pc,
            who,
            shape,
            addr_last: 0,
            distance_last: 0,
            value_last: 0,
            successor: 0,
            fields_row: u32::MAX,
        }
    }
}

// ---------------------------------------------------------------------------------------------
// Numbers

#[inline(always)]
fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (((difference as i64) >> 63) as u64)
}

#[inline(always)]
fn unzigzag(coded: u64) -> u64 {
    (coded >> 1) ^ (coded & 1).wrapping_neg()
}

/// Bytes needed for `n`; 0 for 0.
#[inline(always)]
fn byte_length(n: u64) -> usize {
    ((71 - n.leading_zeros()) >> 3) as usize
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// A nibble of the control byte: `0..=8` is a residual of that many bytes against the first guess,
/// `9..=15` one of `0..=6` bytes against the second.
struct Guess;

impl Guess {
    const SECOND: usize = 9;
    const SECOND_LENGTH_MAX: usize = 6;

    /// Picks the shorter. Returns nibble, residual and its length.
    #[inline(always)]
    fn choose(first: u64, second: u64) -> (u8, u64, usize) {
        let first_length = byte_length(first);
        let second_length = byte_length(second);
        if second_length < first_length && second_length <= Self::SECOND_LENGTH_MAX {
            ((Self::SECOND + second_length) as u8, second, second_length)
        } else {
            (first_length as u8, first, first_length)
        }
    }

    /// Length of the residual, and whether it is against the second guess.
    #[inline(always)]
    fn parse(nibble: u8) -> (usize, bool) {
        let nibble = usize::from(nibble);
        if nibble >= Self::SECOND {
            (nibble - Self::SECOND, true)
        } else {
            (nibble, false)
        }
    }
}

/// A column with room for a whole block, so that appending neither allocates nor branches on
/// growth.
struct Column {
    bytes: Box<[u8]>,
    len: usize,
}

impl Column {
    fn new(capacity: usize) -> Column {
        // `put_word` writes 8 bytes whatever the length.
        Column {
            bytes: vec![0; capacity + 8].into_boxed_slice(),
            len: 0,
        }
    }

    #[inline(always)]
    fn put_byte(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    #[inline(always)]
    fn put_word(&mut self, word: u64, length: usize) {
        self.bytes[self.len..self.len + 8].copy_from_slice(&word.to_le_bytes());
        self.len += length;
    }

    fn put_varint(&mut self, mut n: u32) {
        while n >= 0x80 {
            self.put_byte(n as u8 | 0x80);
            n >>= 7;
        }
        self.put_byte(n as u8);
    }

    fn filled(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

// ---------------------------------------------------------------------------------------------
// Encoder

/// Collects the events of one block.
pub(crate) struct Encoder {
    count: u32,
    count_max: u32,
    sites: Vec<Site>,
    /// Open addressing, site number plus 1; a power of two of slots, at most half full.
    slots: Vec<u32>,
    fields_last: Vec<[u64; FIELDS_MAX]>,
    site_prev: u32,
    site_guess: u32,
    addr_prev: u64,
    codes: Column,
    controls: Column,
    addresses: Column,
    values: Column,
    fields: Vec<u8>,
    bytes: Vec<u8>,
}

/// A row for [`Encoder::put_row`]: what the rarer kinds consist of.
struct Row<'a> {
    addr: u64,
    fields: [u64; FIELDS_MAX],
    bytes: &'a [u8],
}

const SLOTS_MIN: usize = 4096;

impl Encoder {
    pub(crate) fn new(events_per_block: u32) -> Encoder {
        let count_max = events_per_block.clamp(1, EVENTS_PER_BLOCK_MAX);
        let events = count_max as usize;
        Encoder {
            count: 0,
            count_max,
            sites: Vec::with_capacity(SLOTS_MIN / 2),
            slots: vec![0; SLOTS_MIN],
            fields_last: Vec::new(),
            site_prev: 0,
            site_guess: 0,
            addr_prev: 0,
            // A site number is below 2^18: at most 3 bytes.
            codes: Column::new(events * 3),
            controls: Column::new(events),
            addresses: Column::new(events * 8),
            values: Column::new(events * 8),
            fields: Vec::new(),
            bytes: Vec::new(),
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.count >= self.count_max
    }

    /// Bytes in the two columns without a fixed bound.
    #[inline(always)]
    pub(crate) fn variable_bytes(&self) -> usize {
        self.fields.len() + self.bytes.len()
    }

    /// Appends one event. The caller writes the block out before it is full.
    #[inline]
    pub(crate) fn push(&mut self, event: &Event<'_>) -> Result<(), ValueLengthMismatch> {
        debug_assert!(!self.is_full());
        let pc = event.pc.0;
        let who = u64::from(event.context.0) << 32 | u64::from(event.thread.0);
        match &event.kind {
            EventKind::Store(access) => self.put_access(pc, who, tag::STORE, access)?,
            EventKind::Flush { kind, addr } => {
                let tag = match kind {
                    FlushKind::Clflush => tag::CLFLUSH,
                    FlushKind::Clflushopt => tag::CLFLUSHOPT,
                    FlushKind::Clwb => tag::CLWB,
                };
                self.put::<true, false>(pc, who, Shape::new(tag, false, 0), addr.0, 0);
            }
            EventKind::Fence(kind) => {
                let tag = match kind {
                    FenceKind::Sfence => tag::SFENCE,
                    FenceKind::Mfence => tag::MFENCE,
                    FenceKind::Locked => tag::LOCKED,
                };
                self.put::<false, false>(pc, who, Shape::new(tag, false, 0), 0, 0);
            }
            EventKind::NtStore(access) => self.put_access(pc, who, tag::NT_STORE, access)?,
            EventKind::Load(access) => self.put_access(pc, who, tag::LOAD, access)?,
            EventKind::Rmw(access) => self.put_access(pc, who, tag::RMW, access)?,
            other => self.put_rare(pc, who, other)?,
        }
        self.count += 1;
        Ok(())
    }

    #[inline(always)]
    fn put_access(
        &mut self,
        pc: u64,
        who: u64,
        tag: u8,
        access: &Access<'_>,
    ) -> Result<(), ValueLengthMismatch> {
        if access.bytes.len() != access.size as usize && !access.bytes.is_empty() {
            return Err(ValueLengthMismatch);
        }
        if let Ok(word) = <[u8; 8]>::try_from(access.bytes) {
            let shape = Shape::new(tag, true, 8);
            let value = u64::from_le_bytes(word);
            self.put::<true, true>(pc, who, shape, access.addr.0, value);
        } else if access.bytes.len() < 8 && access.size <= SIZE_IN_SHAPE_MAX {
            let shape = Shape::new(tag, !access.bytes.is_empty(), access.size);
            if access.bytes.is_empty() {
                self.put::<true, false>(pc, who, shape, access.addr.0, 0);
            } else {
                let mut word = [0; 8];
                word[..access.bytes.len()].copy_from_slice(access.bytes);
                let value = u64::from_le_bytes(word);
                self.put::<true, true>(pc, who, shape, access.addr.0, value);
            }
        } else {
            let row = Row {
                addr: access.addr.0,
                fields: row_of([]),
                bytes: access.bytes,
            };
            self.put_sized(pc, who, tag, access.size, row)?;
        }
        Ok(())
    }

    /// The common part of all events: site, address, word value.
    #[inline(always)]
    fn put<const ADDR: bool, const VALUE: bool>(
        &mut self,
        pc: u64,
        who: u64,
        shape: Shape,
        addr: u64,
        value: u64,
    ) -> usize {
        let mut id = self.site_guess as usize;
        let hit = match self.sites.get(id) {
            Some(site) => site.pc == pc && site.who == who && site.shape == shape,
            None => false,
        };
        if hit {
            self.codes.put_byte(0);
        } else {
            id = self.find_site(pc, who, shape);
            if let Some(prev) = self.sites.get_mut(self.site_prev as usize) {
                prev.successor = id as u32;
            }
            self.codes.put_varint(id as u32 + 1);
        }
        let site = &mut self.sites[id];
        self.site_prev = id as u32;
        self.site_guess = site.successor;

        let mut control = 0;
        if ADDR {
            let by_distance = self.addr_prev.wrapping_add(site.distance_last);
            let (nibble, residual, length) = Guess::choose(
                zigzag(addr.wrapping_sub(by_distance)),
                zigzag(addr.wrapping_sub(site.addr_last)),
            );
            self.addresses.put_word(residual, length);
            control = nibble;
            site.distance_last = addr.wrapping_sub(self.addr_prev);
            site.addr_last = addr;
            // A request without an address argument must not spoil the next guess.
            self.addr_prev = if addr != 0 { addr } else { self.addr_prev };
        }
        if VALUE {
            let (nibble, residual, length) =
                Guess::choose(zigzag(value.wrapping_sub(site.value_last)), value);
            self.values.put_word(residual, length);
            control |= nibble << 4;
            site.value_last = value;
        }
        self.controls.put_byte(control);
        id
    }

    #[inline(never)]
    fn find_site(&mut self, pc: u64, who: u64, shape: Shape) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = site_hash(pc, who, shape) as usize & mask;
        loop {
            match self.slots[slot] {
                0 => break,
                number => {
                    let site = &self.sites[number as usize - 1];
                    if site.pc == pc && site.who == who && site.shape == shape {
                        return number as usize - 1;
                    }
                }
            }
            slot = (slot + 1) & mask;
        }
        let id = self.sites.len();
        self.sites.push(Site::new(pc, who, shape));
        self.slots[slot] = id as u32 + 1;
        if self.sites.len() * 2 > self.slots.len() {
            self.grow_slots();
        }
        id
    }

    #[cold]
    fn grow_slots(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        self.slots.clear();
        self.slots.resize(mask + 1, 0);
        for (id, site) in self.sites.iter().enumerate() {
            let mut slot = site_hash(site.pc, site.who, site.shape) as usize & mask;
            while self.slots[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            self.slots[slot] = id as u32 + 1;
        }
    }

    #[inline(never)]
    fn put_row(&mut self, pc: u64, who: u64, shape: Shape, row: &Row<'_>) {
        let layout = LAYOUTS[shape.tag() as usize];
        let id = if layout.addr {
            self.put::<true, false>(pc, who, shape, row.addr, 0)
        } else {
            self.put::<false, false>(pc, who, shape, 0, 0)
        };
        let fields = usize::from(layout.fields) + usize::from(shape.size_is_field());
        if fields > 0 {
            let site = &mut self.sites[id];
            if site.fields_row == u32::MAX {
                site.fields_row = self.fields_last.len() as u32;
                self.fields_last.push([0; FIELDS_MAX]);
            }
            let last = &mut self.fields_last[site.fields_row as usize];
            for (last, &field) in last.iter_mut().zip(&row.fields[..fields]) {
                put_varint(&mut self.fields, zigzag(field.wrapping_sub(*last)));
                *last = field;
            }
        }
        self.bytes.extend_from_slice(row.bytes);
    }

    /// A kind whose bytes are as long as its size says.
    fn put_sized(
        &mut self,
        pc: u64,
        who: u64,
        tag: u8,
        size: u32,
        mut row: Row<'_>,
    ) -> Result<(), ValueLengthMismatch> {
        if row.bytes.len() != size as usize && !row.bytes.is_empty() {
            return Err(ValueLengthMismatch);
        }
        let detail = if size <= SIZE_IN_SHAPE_MAX {
            size
        } else {
            SIZE_IN_FIELD
        };
        // Behind the layout's own fields; written only if the shape says so.
        row.fields[usize::from(LAYOUTS[tag as usize].fields)] = u64::from(size);
        self.put_row(
            pc,
            who,
            Shape::new(tag, !row.bytes.is_empty(), detail),
            &row,
        );
        Ok(())
    }

    #[inline(never)]
    fn put_rare(
        &mut self,
        pc: u64,
        who: u64,
        kind: &EventKind<'_>,
    ) -> Result<(), ValueLengthMismatch> {
        let mut parts = Parts::default();
        let tag = take_apart(kind, &mut parts);
        let mut row = Row {
            addr: parts.addr,
            fields: parts.fields,
            bytes: parts.bytes,
        };
        let layout = LAYOUTS[tag as usize];
        match layout.bytes {
            Bytes::Access => return self.put_sized(pc, who, tag, parts.size, row),
            Bytes::Counted => row.fields[usize::from(layout.fields) - 1] = row.bytes.len() as u64,
            Bytes::Never => {}
        }
        self.put_row(pc, who, Shape::new(tag, false, parts.detail), &row);
        Ok(())
    }

    /// Appends the payload to `out` and starts the next block.
    pub(crate) fn finish_block(&mut self, out: &mut Vec<u8>) {
        put_varint(out, self.sites.len() as u64);
        let columns = [
            self.codes.filled(),
            self.controls.filled(),
            self.addresses.filled(),
            self.values.filled(),
            &self.fields,
            &self.bytes,
        ];
        for column in columns {
            put_varint(out, column.len() as u64);
        }
        for site in &self.sites {
            put_varint(out, site.who & u64::from(u32::MAX));
        }
        let mut pc_prev = 0;
        for site in &self.sites {
            put_varint(out, zigzag(site.pc.wrapping_sub(pc_prev)));
            pc_prev = site.pc;
        }
        let mut context_prev = 0;
        for site in &self.sites {
            let context = site.who >> 32;
            put_varint(out, zigzag(context.wrapping_sub(context_prev)));
            context_prev = context;
        }
        out.extend(self.sites.iter().map(|site| site.shape.0 as u8));
        for site in &self.sites {
            put_varint(out, u64::from(site.shape.detail()));
        }
        for column in columns {
            out.extend_from_slice(column);
        }
        self.reset();
    }

    fn reset(&mut self) {
        // One block with very many sites must not make every later reset slow.
        if self.slots.len() > SLOTS_MIN && self.sites.len() * 8 < self.slots.len() {
            self.slots.truncate(self.slots.len() / 2);
        }
        self.slots.fill(0);
        self.sites.clear();
        self.fields_last.clear();
        self.count = 0;
        self.site_prev = 0;
        self.site_guess = 0;
        self.addr_prev = 0;
        self.codes.len = 0;
        self.controls.len = 0;
        self.addresses.len = 0;
        self.values.len = 0;
        self.fields.clear();
        self.bytes.clear();
    }
}

#[inline(always)]
fn site_hash(pc: u64, who: u64, shape: Shape) -> u64 {
    // Odd constants from the golden ratio and from MurmurHash3's finaliser; only spread matters.
    let mixed = (pc ^ who.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ shape.0.wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 32)
}

fn row_of<const N: usize>(fields: [u64; N]) -> [u64; FIELDS_MAX] {
    let mut row = [0; FIELDS_MAX];
    row[..N].copy_from_slice(&fields);
    row
}

fn status_parts(status: ExitStatus) -> (u32, u64) {
    match status {
        ExitStatus::Code(code) => (0, zigzag(i64::from(code) as u64)),
        ExitStatus::Signal(signal) => (1, zigzag(i64::from(signal) as u64)),
        ExitStatus::Exec => (2, 0),
    }
}

// ---------------------------------------------------------------------------------------------
// Decoder

/// What is wrong with a payload; one clause for [`crate::Error::Corrupt`].
pub(crate) type Fault = &'static str;

/// A part of the payload that has not been consumed yet.
#[derive(Clone, Copy, Default)]
struct Cursor {
    at: usize,
    end: usize,
}

impl Cursor {
    #[inline(always)]
    fn byte(&mut self, raw: &[u8]) -> Result<u8, Fault> {
        if self.at >= self.end {
            return Err("a column ends early");
        }
        let byte = raw[self.at];
        self.at += 1;
        Ok(byte)
    }

    #[inline(always)]
    fn word(&mut self, raw: &[u8], length: usize) -> Result<u64, Fault> {
        if self.end - self.at < length {
            return Err("a column ends early");
        }
        let mut word = [0; 8];
        // The decoder pads its buffer, so that 8 bytes are there whatever `length` is.
        word.copy_from_slice(&raw[self.at..self.at + 8]);
        self.at += length;
        let unwanted_bits = 64 - 8 * length as u32;
        Ok(u64::from_le_bytes(word) & u64::MAX.checked_shr(unwanted_bits).unwrap_or(0))
    }

    fn varint(&mut self, raw: &[u8]) -> Result<u64, Fault> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(raw)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err("a number is too long");
            }
            n |= bits << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err("a number is too long")
    }

    fn take(&mut self, len: u64) -> Result<std::ops::Range<usize>, Fault> {
        if len > (self.end - self.at) as u64 {
            return Err("a column ends early");
        }
        let start = self.at;
        self.at += len as usize;
        Ok(start..self.at)
    }
}

/// Takes the events of one block apart, one after the other.
#[derive(Default)]
pub(crate) struct Decoder {
    /// The payload, and 8 bytes of padding.
    raw: Vec<u8>,
    remaining: u32,
    sites: Vec<Site>,
    fields_last: Vec<[u64; FIELDS_MAX]>,
    site_prev: usize,
    addr_prev: u64,
    codes: Cursor,
    controls: Cursor,
    addresses: Cursor,
    values: Cursor,
    fields: Cursor,
    bytes: Cursor,
    /// Backs the bytes of a value of at most 8 bytes.
    word: [u8; 8],
}

const PADDING: usize = 8;

impl Decoder {
    /// Events not yet taken.
    pub(crate) fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Forgets the block.
    pub(crate) fn clear(&mut self) {
        self.remaining = 0;
    }

    /// Starts on a block of `count` events whose payload `fill` leaves in the buffer it is given.
    pub(crate) fn load<E: From<Fault>>(
        &mut self,
        count: u32,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.remaining = 0;
        self.raw.clear();
        fill(&mut self.raw)?;
        let end = self.raw.len();
        self.raw.resize(end + PADDING, 0);
        self.parse(count, end)?;
        self.remaining = count;
        Ok(())
    }

    fn parse(&mut self, count: u32, end: usize) -> Result<(), Fault> {
        let raw = &self.raw[..];
        let mut cursor = Cursor { at: 0, end };
        let site_count = cursor.varint(raw)?;
        if site_count > u64::from(count) || count > EVENTS_PER_BLOCK_MAX {
            return Err("it has more sites than events");
        }
        let site_count = site_count as usize;
        let mut lengths = [0; 6];
        for length in &mut lengths {
            *length = cursor.varint(raw)?;
        }

        self.sites.clear();
        for _ in 0..site_count {
            let thread = field_u32(cursor.varint(raw)?)?;
            self.sites
                .push(Site::new(0, u64::from(thread), Shape::default()));
        }
        let mut pc_prev = 0u64;
        for site in &mut self.sites {
            pc_prev = pc_prev.wrapping_add(unzigzag(cursor.varint(raw)?));
            site.pc = pc_prev;
        }
        let mut context_prev = 0u64;
        for site in &mut self.sites {
            context_prev = context_prev.wrapping_add(unzigzag(cursor.varint(raw)?));
            site.who |= u64::from(field_u32(context_prev)?) << 32;
        }
        for site in &mut self.sites {
            let byte = cursor.byte(raw)?;
            if byte & !Shape::VALUES >= tag::COUNT {
                return Err("it has an event of unknown kind");
            }
            site.shape = Shape(u64::from(byte));
        }
        for site in &mut self.sites {
            let detail = field_u32(cursor.varint(raw)?)?;
            site.shape.0 |= u64::from(detail) << 8;
        }

        let columns = [
            &mut self.codes,
            &mut self.controls,
            &mut self.addresses,
            &mut self.values,
            &mut self.fields,
            &mut self.bytes,
        ];
        for (column, length) in columns.into_iter().zip(lengths) {
            let range = cursor.take(length)?;
            *column = Cursor {
                at: range.start,
                end: range.end,
            };
        }
        if cursor.at != end {
            return Err("bytes are left over after its columns");
        }
        self.fields_last.clear();
        self.site_prev = 0;
        self.addr_prev = 0;
        Ok(())
    }

    /// Takes the next event. The caller has checked that one remains.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Event<'_>, Fault> {
        debug_assert!(self.remaining > 0);
        // Nothing remains behind an event that cannot be decoded: it may have been of any length.
        let left = std::mem::take(&mut self.remaining).saturating_sub(1);
        let raw = &self.raw[..];
        let first = self.codes.byte(raw)?;
        let id = if first == 0 {
            self.sites
                .get(self.site_prev)
                .map_or(0, |site| site.successor as usize)
        } else {
            self.codes.at -= 1;
            let number = self.codes.varint(raw)?;
            let id = number
                .checked_sub(1)
                .ok_or("a number is not in its shortest form")? as usize;
            if let Some(prev) = self.sites.get_mut(self.site_prev) {
                // Out of range only if the next line fails too.
                prev.successor = id as u32;
            }
            id
        };
        let site = self
            .sites
            .get_mut(id)
            .ok_or("an event refers to an unknown site")?;
        self.site_prev = id;

        let control = self.controls.byte(raw)?;
        let shape = site.shape;
        let layout = LAYOUTS[shape.tag() as usize];
        let mut addr = 0;
        if layout.addr {
            let (length, second) = Guess::parse(control & 0xf);
            let residual = unzigzag(self.addresses.word(raw, length)?);
            let guess = if second {
                site.addr_last
            } else {
                self.addr_prev.wrapping_add(site.distance_last)
            };
            addr = guess.wrapping_add(residual);
            site.distance_last = addr.wrapping_sub(self.addr_prev);
            site.addr_last = addr;
            self.addr_prev = if addr != 0 { addr } else { self.addr_prev };
        }
        let addr = TargetAddr(addr);

        let tag = shape.tag();
        let thread = ThreadId(site.who as u32);
        let context = ContextId((site.who >> 32) as u32);
        let pc = TargetAddr(site.pc);
        let event = |kind| Event {
            thread,
            pc,
            context,
            kind,
        };

        if shape.value_is_word() {
            let (length, second) = Guess::parse(control >> 4);
            let residual = self.values.word(raw, length)?;
            let value = if second {
                residual
            } else {
                site.value_last.wrapping_add(unzigzag(residual))
            };
            site.value_last = value;
            self.word = value.to_le_bytes();
            if left == 0 {
                self.check_consumed()?;
            }
            self.remaining = left;
            let size = shape.detail();
            let access = Access {
                addr,
                size,
                bytes: &self.word[..size as usize],
            };
            return Ok(event(access_kind(tag, access)));
        }

        let field_count = usize::from(layout.fields) + usize::from(shape.size_is_field());
        let mut row = [0; FIELDS_MAX];
        if field_count > 0 {
            if site.fields_row == u32::MAX {
                site.fields_row = self.fields_last.len() as u32;
                self.fields_last.push([0; FIELDS_MAX]);
            }
            let last = &mut self.fields_last[site.fields_row as usize];
            for last in &mut last[..field_count] {
                *last = last.wrapping_add(unzigzag(self.fields.varint(raw)?));
            }
            row = *last;
        }
        let size = match (layout.bytes, shape.size_is_field()) {
            (Bytes::Access, true) => field_u32(row[field_count - 1])?,
            (Bytes::Access, false) => shape.detail(),
            _ => 0,
        };
        let length = match layout.bytes {
            Bytes::Never => 0,
            Bytes::Access if shape.values() => u64::from(size),
            Bytes::Access => 0,
            Bytes::Counted => row[field_count - 1],
        };
        let range = self.bytes.take(length)?;
        if left == 0 {
            self.check_consumed()?;
        }
        let bytes = &self.raw[range];

        let kind = match tag {
            tag::STORE | tag::NT_STORE | tag::LOAD | tag::RMW => {
                access_kind(tag, Access { addr, size, bytes })
            }
            tag::CLFLUSH => EventKind::Flush {
                kind: FlushKind::Clflush,
                addr,
            },
            tag::CLFLUSHOPT => EventKind::Flush {
                kind: FlushKind::Clflushopt,
                addr,
            },
            tag::CLWB => EventKind::Flush {
                kind: FlushKind::Clwb,
                addr,
            },
            tag::SFENCE => EventKind::Fence(FenceKind::Sfence),
            tag::MFENCE => EventKind::Fence(FenceKind::Mfence),
            tag::LOCKED => EventKind::Fence(FenceKind::Locked),
            _ => put_together(
                tag,
                &mut Found {
                    detail: shape.detail(),
                    addr,
                    fields: row,
                    fields_taken: 0,
                    size,
                    bytes,
                },
            )?,
        };
        self.remaining = left;
        Ok(event(kind))
    }

    fn check_consumed(&self) -> Result<(), Fault> {
        let columns = [
            self.codes,
            self.controls,
            self.addresses,
            self.values,
            self.fields,
            self.bytes,
        ];
        if columns.iter().any(|column| column.at != column.end) {
            return Err("a column is longer than its events");
        }
        Ok(())
    }
}

#[inline(always)]
fn access_kind(tag: u8, access: Access<'_>) -> EventKind<'_> {
    match tag {
        tag::STORE => EventKind::Store(access),
        tag::NT_STORE => EventKind::NtStore(access),
        tag::LOAD => EventKind::Load(access),
        _ => EventKind::Rmw(access),
    }
}

fn field_u32(field: u64) -> Result<u32, Fault> {
    u32::try_from(field).map_err(|_| "a number is out of range")
}

fn status_from(how: u32, number: u64) -> Result<ExitStatus, Fault> {
    let number = i32::try_from(unzigzag(number) as i64).map_err(|_| "a number is out of range")?;
    match how {
        0 => Ok(ExitStatus::Code(number)),
        1 => Ok(ExitStatus::Signal(number)),
        2 => Ok(ExitStatus::Exec),
        _ => Err("an exit status is of unknown kind"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::NAMES;

    /// How many fields a cell of the document's table names.
    fn fields(cell: &str) -> u8 {
        let of = |item: &str| match item.trim().strip_prefix("arguments ") {
            Some(range) => {
                let (from, to) = range.split_once(" to ").expect("a range");
                to.parse::<u8>().expect("a number") - from.parse::<u8>().expect("a number") + 1
            }
            None => u8::from(!item.trim().is_empty()),
        };
        cell.split(',').map(of).sum()
    }

    #[test]
    fn the_document_has_every_tag_with_its_layout() {
        let document = include_str!("../../../docs/trace-format.md");
        let mut names = Vec::new();
        let mut tags = Vec::new();
        let rows = document
            .lines()
            .skip_while(|line| !line.starts_with("| tag | event |"))
            .skip(2)
            .take_while(|line| line.starts_with('|'));
        for row in rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let [_, of_tags, events, _detail, addr, of_fields, bytes, _] = cells[..] else {
                panic!("a row with other columns: {row}");
            };
            names.extend(events.split(", ").map(|name| name.trim_matches('`')));
            for tag in of_tags.split(", ").map(|tag| tag.parse().expect("a tag")) {
                let layout = LAYOUTS[usize::from(u8::min(tag, tag::COUNT - 1))];
                assert_eq!(!addr.is_empty(), layout.addr, "{row}");
                assert_eq!(fields(of_fields), layout.fields, "{row}");
                assert_eq!(bytes.is_empty(), layout.bytes == Bytes::Never, "{row}");
                tags.push(tag);
            }
        }
        assert_eq!(tags, (0..tag::COUNT).collect::<Vec<_>>());
        let mut known = NAMES.to_vec();
        known.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, known);
    }
}
