pub const ENTRIES_SHIFT: u32 = 12;
