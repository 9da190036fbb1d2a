//! sites
pub const FLAG_CFA_FROM_RBP: u8 = 1;
pub const FLAG_VALUE: u8 = 2;
#[repr(C)]
pub struct Site {
    /// First word of the record, without the thread.
    pub head: u64,
    pub id: u32,
    pub size: u32,
    pub cfa_offset: i32,
    pub flags: u8,
    /// What becomes of `unfenced`: 0, 1, or 2 for unchanged.
    pub unfenced: u8,
    pub scratch: u8,
    pub pc: u64,
    pub next_code: u64,
    pub cold: (u64, u64),
}
pub fn from_payload(p: u64) -> &'static Site { unsafe { &*((p) as *const Site) } }
pub fn is_known(_pc: u64) -> bool { false }
