//! The registers of a stopped thread, as plain memory.
//!
//! Vector and mask registers live in a standard-format (not compacted) XSAVE image, as the kernel
//! puts it into a signal frame and as `xsave` writes it. A clear bit in `XSTATE_BV` means that the
//! component is in its initial state, whatever bytes lie in its place; reads honour that, and a
//! write that leaves the initial state first clears the component's bytes, then sets the bit.
//!
//! Source: Intel SDM volume 1, chapter 13.

/// Where a component of the XSAVE area lies (CPUID leaf 0xD, one sub-leaf a component).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct XsaveComponent {
    /// Bytes from the beginning of a standard-format area.
    pub offset: u32,
    /// Bytes; 0 if the CPU does not have the component.
    pub size: u32,
    /// In the compacted format it begins at a multiple of 64.
    pub aligned: bool,
}

/// The XSAVE area of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XsaveLayout {
    /// The components that the kernel enabled (XCR0).
    pub enabled: u64,
    /// By component number; 0 (x87) and 1 (SSE) lie in the legacy region and are left empty here.
    pub components: [XsaveComponent; 32],
}

/// Bytes of the legacy region and the header, which every area begins with.
pub const XSAVE_HEADER_END: u32 = 576;

const LEGACY_X87: usize = 0;
const LEGACY_SSE: usize = 1;
const AVX: usize = 2;
const OPMASK: usize = 5;
const ZMM_HI256: usize = 6;
const HI16_ZMM: usize = 7;

const FCW: usize = 0;
const FSW: usize = 2;
const FTW: usize = 4;
const ST_AT: usize = 32;
const XMM_AT: usize = 160;
const XMM_END: usize = 416;
const XSTATE_BV: usize = 512;

impl XsaveLayout {
    /// A machine without XSAVE: the legacy region only.
    pub const LEGACY: XsaveLayout = XsaveLayout {
        enabled: 3,
        components: [XsaveComponent {
            offset: 0,
            size: 0,
            aligned: false,
        }; 32],
    };

    /// Asks the CPU. `xcr0` is what `xgetbv(0)` says, `cpuid(leaf, subleaf)` gives `[eax, ebx, ecx,
    /// edx]`.
    #[must_use]
    pub fn from_cpuid(xcr0: u64, mut cpuid: impl FnMut(u32, u32) -> [u32; 4]) -> XsaveLayout {
        let mut layout = XsaveLayout {
            enabled: xcr0,
            ..XsaveLayout::LEGACY
        };
        for (number, component) in layout.components.iter_mut().enumerate().skip(2) {
            if xcr0 >> number & 1 == 1 {
                let [size, offset, ecx, _] = cpuid(0xD, number as u32);
                *component = XsaveComponent {
                    offset,
                    size,
                    aligned: ecx & 2 != 0,
                };
            }
        }
        layout
    }

    /// Bytes of a standard-format area with the components of `mask`.
    #[must_use]
    pub fn standard_size(&self, mask: u64) -> u32 {
        self.components(mask)
            .map(|(_, component)| component.offset + component.size)
            .fold(XSAVE_HEADER_END, u32::max)
    }

    /// The extended components of `mask` that are enabled, in ascending order.
    pub(crate) fn components(
        &self,
        mask: u64,
    ) -> impl Iterator<Item = (usize, XsaveComponent)> + '_ {
        let chosen = mask & self.enabled;
        (2..self.components.len())
            .filter(move |number| chosen >> number & 1 == 1)
            .map(|number| (number, self.components[number]))
    }

    fn place(&self, component: usize) -> Option<(usize, usize)> {
        let XsaveComponent { offset, size, .. } = self.components[component];
        (size != 0 && self.enabled >> component & 1 == 1)
            .then_some((offset as usize, size as usize))
    }
}

/// The bases of the two segments that have one in 64-bit mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SegmentBases {
    /// `fs`.
    pub fs: u64,
    /// `gs`.
    pub gs: u64,
}

/// The registers of a thread before the instruction runs.
pub struct RegisterState<'a> {
    /// `rax`, `rcx`, `rdx`, `rbx`, `rsp`, `rbp`, `rsi`, `rdi`, `r8` … `r15`.
    pub gpr: &'a [u64; 16],
    /// The flags; only the direction flag matters here.
    pub rflags: u64,
    /// Segment bases.
    pub segments: SegmentBases,
    /// A standard-format XSAVE image of at least `layout.standard_size(layout.enabled)` bytes.
    pub xsave: &'a mut [u8],
    /// Where its components lie.
    pub layout: &'a XsaveLayout,
}

/// Copies between the parts of a vector register and the places in the image: component, offset of
/// the part there, first byte of the part in the register, bytes.
fn vector_parts(number: usize) -> ([(usize, usize, usize, usize); 3], usize) {
    if number < 16 {
        let parts = [
            (LEGACY_SSE, XMM_AT + 16 * number, 0, 16),
            (AVX, 16 * number, 16, 16),
            (ZMM_HI256, 32 * number, 32, 32),
        ];
        (parts, 3)
    } else {
        let part = (HI16_ZMM, 64 * (number - 16), 0, 64);
        ([part; 3], 1)
    }
}

impl RegisterState<'_> {
    /// The 512 bits of vector register `number` (0–31).
    #[must_use]
    pub fn vector(&self, number: u8) -> [u8; 64] {
        let mut value = [0; 64];
        let (parts, count) = vector_parts(usize::from(number));
        for &(component, at, first, bytes) in &parts[..count] {
            if let Some(base) = self.readable(component) {
                value[first..first + bytes]
                    .copy_from_slice(&self.xsave[base + at..base + at + bytes]);
            }
        }
        value
    }

    /// Sets all 512 bits of vector register `number`; the parts that this machine does not have are
    /// ignored.
    pub fn set_vector(&mut self, number: u8, value: &[u8; 64]) {
        let (parts, count) = vector_parts(usize::from(number));
        for &(component, at, first, bytes) in &parts[..count] {
            self.write(component, at, &value[first..first + bytes]);
        }
    }

    /// The 64 bits of opmask register `number` (0–7).
    #[must_use]
    pub fn opmask(&self, number: u8) -> u64 {
        let at = 8 * usize::from(number);
        match self.readable(OPMASK) {
            Some(base) => {
                u64::from_le_bytes(core::array::from_fn(|byte| self.xsave[base + at + byte]))
            }
            None => 0,
        }
    }

    /// Sets opmask register `number`.
    pub fn set_opmask(&mut self, number: u8, value: u64) {
        self.write(OPMASK, 8 * usize::from(number), &value.to_le_bytes());
    }

    /// MMX register `number` (0–7).
    #[must_use]
    pub fn mmx(&self, number: u8) -> [u8; 8] {
        let Some(_) = self.readable(LEGACY_X87) else {
            return [0; 8];
        };
        let at = ST_AT + 16 * ((usize::from(number) + 8 - self.x87_top()) % 8);
        core::array::from_fn(|byte| self.xsave[at + byte])
    }

    /// What every MMX instruction but `emms` does to the x87 state: the top of the stack becomes 0
    /// and all registers become valid. The image holds the registers in stack order, so they move.
    pub fn enter_mmx(&mut self) {
        self.put_in_use(LEGACY_X87);
        let top = self.x87_top();
        self.xsave[ST_AT..ST_AT + 128].rotate_right(16 * top);
        let fsw = u16::from_le_bytes([self.xsave[FSW], self.xsave[FSW + 1]]) & !(7 << 11);
        self.xsave[FSW..FSW + 2].copy_from_slice(&fsw.to_le_bytes());
        self.xsave[FTW] = 0xFF;
    }

    fn x87_top(&self) -> usize {
        usize::from(self.xsave[FSW + 1] >> 3 & 7)
    }

    fn in_use(&self, component: usize) -> bool {
        self.xsave[XSTATE_BV + component / 8] >> (component % 8) & 1 == 1
    }

    /// The base of the offsets within a component, if its bytes are its state.
    fn readable(&self, component: usize) -> Option<usize> {
        if !self.in_use(component) {
            None
        } else {
            self.base(component)
        }
    }

    /// Offsets of the legacy components count from the beginning of the area.
    fn base(&self, component: usize) -> Option<usize> {
        match component {
            LEGACY_X87 | LEGACY_SSE => Some(0),
            _ => self.layout.place(component).map(|(offset, _)| offset),
        }
    }

    fn write(&mut self, component: usize, at: usize, bytes: &[u8]) {
        let Some(base) = self.base(component) else {
            return;
        };
        if !self.in_use(component) {
            if bytes.iter().all(|&byte| byte == 0) {
                return; // Zero is the initial state.
            }
            self.put_in_use(component);
        }
        self.xsave[base + at..base + at + bytes.len()].copy_from_slice(bytes);
    }

    fn put_in_use(&mut self, component: usize) {
        if self.in_use(component) {
            return;
        }
        match component {
            LEGACY_X87 => {
                self.xsave[..24].fill(0);
                self.xsave[ST_AT..XMM_AT].fill(0);
                self.xsave[FCW..FCW + 2].copy_from_slice(&0x37Fu16.to_le_bytes());
            }
            // MXCSR is not part of what the bit of the SSE component governs.
            LEGACY_SSE => self.xsave[XMM_AT..XMM_END].fill(0),
            _ => {
                let Some((offset, size)) = self.layout.place(component) else {
                    return;
                };
                self.xsave[offset..offset + size].fill(0);
            }
        }
        self.xsave[XSTATE_BV + component / 8] |= 1 << (component % 8);
    }
}
