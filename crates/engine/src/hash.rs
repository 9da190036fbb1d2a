//! The hash of tables whose keys are program addresses.

/// Program addresses are already well spread: one multiplication.
#[derive(Clone, Copy, Default)]
pub struct PcHash;
pub struct PcHasher(u64);
impl core::hash::BuildHasher for PcHash {
    type Hasher = PcHasher;
    fn build_hasher(&self) -> PcHasher {
        PcHasher(0)
    }
}
impl core::hash::Hasher for PcHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {}
    fn write_u32(&mut self, v: u32) {
        self.write_u64(v as u64);
    }
    fn write_u64(&mut self, v: u64) {
        self.0 = (self.0 ^ v)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(20);
    }
}
