use iced_x86::Instruction;
impl super::Builder<'_> {
    pub(super) fn instrument(&mut self, _insn: &Instruction, _raw: &[u8]) -> bool { false }
}
