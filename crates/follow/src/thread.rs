//! What is known of a thread: the labels of its registers, and where it is.

use crate::sets::Label;
use brownout_flow::{Flag, Place, REGISTER_PLACES, Span, Summary};
use brownout_trace::event::ProcessId;

/// The labels of all registers, and which registers have any.
#[derive(Clone)]
pub struct Registers {
    /// By place.
    pub labels: Box<[Label]>,
    live: Live,
    /// Labels that an instruction does not see, and the register that they belong to.
    hidden: Option<(Span, [Label; 8])>,
}

/// Registers of which any byte has a label, as in [`Summary`].
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Live {
    vectors: u32,
    gprs: u16,
    opmasks: u8,
    flags: u8,
    mmx: u8,
    others: bool,
}

impl Default for Registers {
    fn default() -> Registers {
        Registers {
            labels: vec![Label::NONE; REGISTER_PLACES].into(),
            live: Live::default(),
            hidden: None,
        }
    }
}

impl Registers {
    /// Whether any register has a label.
    pub fn any(&self) -> bool {
        self.live != Live::default()
    }

    /// Whether an instruction touches a register that has a label.
    #[inline]
    pub fn concern(&self, touched: &Summary) -> bool {
        let (live, t) = (&self.live, touched);
        live.gprs & (t.gprs_read | t.gprs_written | t.gprs_addressing) != 0
            || live.vectors & (t.vectors_read | t.vectors_written) != 0
            || live.flags & (t.flags_read | t.flags_written) != 0
            || live.opmasks & (t.opmasks_read | t.opmasks_written) != 0
            || live.mmx & (t.mmx_read | t.mmx_written) != 0
            || t.x87 && live.mmx != 0
            || live.others && (t.others_read || t.others_written || t.x87)
    }

    /// Sees which registers have labels, of those that an instruction has written.
    pub fn written(&mut self, touched: &Summary) {
        fn each(mut set: u32, mut f: impl FnMut(usize)) {
            while set != 0 {
                f(set.trailing_zeros() as usize);
                set &= set - 1;
            }
        }
        let labels = &self.labels;
        let has = |place: Place, bytes: usize| {
            let from = usize::from(place.0);
            labels[from..from + bytes]
                .iter()
                .any(|label| !label.is_none())
        };
        let live = &mut self.live;
        each(touched.gprs_written.into(), |n| {
            live.gprs = live.gprs & !(1 << n) | u16::from(has(Place::gpr(n), 8)) << n;
        });
        each(touched.vectors_written, |n| {
            live.vectors = live.vectors & !(1 << n) | u32::from(has(Place::vector(n), 64)) << n;
        });
        each(touched.flags_written.into(), |n| {
            let place = Place::flag(Flag::ALL[n]);
            live.flags = live.flags & !(1 << n) | u8::from(has(place, 1)) << n;
        });
        each(touched.opmasks_written.into(), |n| {
            live.opmasks = live.opmasks & !(1 << n) | u8::from(has(Place::opmask(n), 8)) << n;
        });
        let mmx = if touched.x87 {
            0xFF
        } else {
            touched.mmx_written
        };
        each(mmx.into(), |n| {
            live.mmx = live.mmx & !(1 << n) | u8::from(has(Place::mmx(n), 10)) << n;
        });
        if touched.others_written || touched.x87 {
            let from = Place::MXCSR_CONTROL;
            let bytes = usize::from(Place::opmask(0).0 - from.0);
            live.others = has(from, bytes);
        }
    }

    /// For an instruction that looks for the first bit that is set in a register, which holds
    /// `value`: hides the labels of the bytes behind it. So the length of a string does not depend
    /// on what lies behind its end, though its bytes were compared together with those.
    pub fn hide_behind_first_bit(&mut self, register: Span, value: u64) {
        if value == 0 {
            return;
        }
        let seen = 1 + value.trailing_zeros() as usize / 8;
        let from = usize::from(register.place.0);
        let labels = &mut self.labels[from..from + register.len()];
        let mut kept = [Label::NONE; 8];
        kept[..labels.len()].copy_from_slice(labels);
        self.hidden = Some((register, kept));
        labels[seen.min(register.len())..].fill(Label::NONE);
    }

    /// Behind that instruction, which touches those registers: the labels are there again, unless
    /// it has put its result there.
    pub fn show_hidden(&mut self, touched: &Summary) {
        let Some((register, kept)) = self.hidden.take() else {
            return;
        };
        let number = (usize::from(register.place.0) - usize::from(Place::gpr(0).0)) / 8;
        if touched.gprs_written & 1 << number == 0 {
            let from = usize::from(register.place.0);
            self.labels[from..from + register.len()].copy_from_slice(&kept[..register.len()]);
        }
    }

    /// Takes the labels from some places.
    pub fn clear(&mut self, span: Span) {
        let from = usize::from(span.place.0);
        self.labels[from..from + span.len()].fill(Label::NONE);
    }

    /// Looks at all registers anew.
    pub fn look(&mut self) {
        self.written(&Summary {
            vectors_written: u32::MAX,
            gprs_written: u16::MAX,
            opmasks_written: u8::MAX,
            flags_written: u8::MAX,
            mmx_written: u8::MAX,
            x87: true,
            others_written: true,
            ..Summary::default()
        });
    }
}

/// What a thread has said of the operands of a step.
#[derive(Default)]
pub struct Announced {
    pub step: usize,
    pub operand: Option<u64>,
    pub stack: Option<u64>,
    pub x87: Option<u16>,
    /// An operand may be in tracked memory.
    pub is_tracked: bool,
    pub details: Vec<u64>,
    /// `rcx` behind it.
    pub rest: Option<u64>,
}

impl Announced {
    /// Forgets what was said, unless it is of this step.
    pub fn of(&mut self, step: usize) -> &mut Announced {
        if self.step != step {
            self.reset(step);
        }
        self
    }

    pub fn reset(&mut self, step: usize) {
        self.step = step;
        (self.operand, self.stack, self.x87, self.rest) = (None, None, None, None);
        self.is_tracked = false;
        self.details.clear();
    }
}

/// The block that a thread is in.
#[derive(Clone, Copy)]
pub struct Open {
    pub block: usize,
    /// The step that was not executed yet.
    pub next: usize,
}

/// Memory that leaves the process by a system call.
pub struct Leaving {
    pub address: u64,
    /// None: it has no labels.
    pub labels: Option<Vec<Label>>,
    pub len: usize,
}

/// A system call under way.
#[derive(Default)]
pub struct Call {
    pub number: u32,
    pub leaving: Vec<Leaving>,
    /// Labels of what it has read from tracked files.
    pub read: Vec<Label>,
    /// How much of what leaves has gone to tracked files.
    pub filed: usize,
    /// What it has written is still being told: how many bytes of it were.
    pub wrote: usize,
    /// Which of the bytes that it has written have labels of their own.
    pub given: Vec<Given>,
}

/// Some of the bytes that a system call has given to a program: they have labels, one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// The first of them, among all that the call has given.
    pub from: u64,
    /// How many.
    pub len: u64,
    /// The number of the source that labels the first; the next number is that of the second, and
    /// so on. Not 0.
    pub source: u32,
}

/// See the module's header.
pub struct Thread {
    pub process: ProcessId,
    pub registers: Registers,
    pub open: Option<Open>,
    pub announced: Announced,
    /// Raw words of which the rest comes with the next record.
    pub cut: Vec<u64>,
    /// Where it stood last.
    pub pc: u64,
    pub fs: u64,
    pub call: Call,
    /// Interrupted by signals: where the frame is, and the registers.
    pub frames: Vec<(u64, Registers)>,
    /// The registers when it began to make a thread or process, unless that is done.
    pub making: Option<Registers>,
}

impl Thread {
    pub fn new(process: ProcessId) -> Thread {
        Thread {
            process,
            registers: Registers::default(),
            open: None,
            announced: Announced::default(),
            cut: Vec::new(),
            pc: 0,
            fs: 0,
            call: Call::default(),
            frames: Vec::new(),
            making: None,
        }
    }
}
