//! Which rule describes an instruction.

use crate::operands::{Known, Lifter};
use crate::{Flag, Machine, Next, Unsupported};
use iced_x86::Mnemonic;

impl<M: Machine> Lifter<'_, M> {
    pub(crate) fn run(&mut self) -> Known<Next<M::Value>> {
        self.check_operands()?;
        if self.i.is_string_instruction() {
            if self.is_repeated() {
                return Err(Unsupported);
            }
            self.string_iteration()?;
            return Ok(Next::Falls);
        }
        let mnemonic = self.i.mnemonic();
        if let Some(next) = self.control(mnemonic)? {
            return Ok(next);
        }
        let known = self.integer(mnemonic)?
            || self.moves(mnemonic)?
            || self.elements(mnemonic)?
            || self.text(mnemonic)?;
        if !known {
            return Err(Unsupported);
        }
        Ok(Next::Falls)
    }

    fn control(&mut self, mnemonic: Mnemonic) -> Known<Option<Next<M::Value>>> {
        use Mnemonic as N;
        Ok(Some(match mnemonic {
            N::Jo
            | N::Jno
            | N::Jb
            | N::Jae
            | N::Je
            | N::Jne
            | N::Jbe
            | N::Ja
            | N::Js
            | N::Jns
            | N::Jp
            | N::Jnp
            | N::Jl
            | N::Jge
            | N::Jle
            | N::Jg => self.jcc()?,
            N::Jrcxz | N::Jecxz | N::Loop | N::Loope | N::Loopne => self.count_branch(mnemonic)?,
            N::Jmp => self.jump()?,
            N::Call => self.call()?,
            N::Ret => self.ret()?,
            _ => return Ok(None),
        }))
    }

    /// Whether there was a rule.
    fn integer(&mut self, mnemonic: Mnemonic) -> Known<bool> {
        use Mnemonic as N;
        match mnemonic {
            N::Mov | N::Movnti => self.mov()?,
            N::Movzx => self.mov_extended(false)?,
            N::Movsx | N::Movsxd => self.mov_extended(true)?,
            N::Movbe => self.movbe()?,
            N::Bswap => self.bswap()?,
            N::Lea => self.lea()?,
            N::Xchg => self.xchg()?,
            N::Xadd => self.xadd()?,
            N::Cmpxchg => self.cmpxchg()?,
            N::Cmpxchg8b => self.cmpxchg_pair(32)?,
            N::Cmpxchg16b => self.cmpxchg_pair(64)?,
            N::Add => self.add(false)?,
            N::Adc => self.add(true)?,
            N::Adcx => self.add_by(Flag::Carry)?,
            N::Adox => self.add_by(Flag::Overflow)?,
            N::Sub => self.sub(false, true)?,
            N::Sbb => self.sub(true, true)?,
            N::Cmp => self.sub(false, false)?,
            N::Inc => self.step(false)?,
            N::Dec => self.step(true)?,
            N::Neg => self.neg()?,
            N::Not => self.not()?,
            N::And | N::Or | N::Xor | N::Test => self.logical(mnemonic)?,
            N::Mul => self.mul(false)?,
            N::Imul => self.imul()?,
            N::Mulx => self.mulx()?,
            N::Div => self.div(false)?,
            N::Idiv => self.div(true)?,
            N::Cbw => self.extend_accumulator(16),
            N::Cwde => self.extend_accumulator(32),
            N::Cdqe => self.extend_accumulator(64),
            N::Cwd => self.spread_sign(16),
            N::Cdq => self.spread_sign(32),
            N::Cqo => self.spread_sign(64),
            N::Seto
            | N::Setno
            | N::Setb
            | N::Setae
            | N::Sete
            | N::Setne
            | N::Setbe
            | N::Seta
            | N::Sets
            | N::Setns
            | N::Setp
            | N::Setnp
            | N::Setl
            | N::Setge
            | N::Setle
            | N::Setg => self.setcc()?,
            N::Cmovo
            | N::Cmovno
            | N::Cmovb
            | N::Cmovae
            | N::Cmove
            | N::Cmovne
            | N::Cmovbe
            | N::Cmova
            | N::Cmovs
            | N::Cmovns
            | N::Cmovp
            | N::Cmovnp
            | N::Cmovl
            | N::Cmovge
            | N::Cmovle
            | N::Cmovg => self.cmovcc()?,
            N::Shl | N::Sal | N::Shr | N::Sar => self.shift(mnemonic)?,
            N::Rol => self.rotate(true)?,
            N::Ror => self.rotate(false)?,
            N::Rcl => self.rotate_through_carry(true)?,
            N::Rcr => self.rotate_through_carry(false)?,
            N::Shld => self.shift_double(true)?,
            N::Shrd => self.shift_double(false)?,
            N::Shlx | N::Shrx | N::Sarx => self.shift_plain(mnemonic)?,
            N::Rorx => self.rorx()?,
            // Knights Corner has instructions of these names in an encoding of its own.
            N::Tzcnt | N::Lzcnt | N::Popcnt if self.is_vex() => return Err(Unsupported),
            N::Crc32 => self.crc32()?,
            N::Bt | N::Bts | N::Btr | N::Btc => self.bit_test(mnemonic)?,
            N::Bsf => self.bit_scan(false)?,
            N::Bsr => self.bit_scan(true)?,
            N::Tzcnt => self.count_zeros(false)?,
            N::Lzcnt => self.count_zeros(true)?,
            N::Popcnt => self.popcnt()?,
            N::Andn => self.andn()?,
            N::Blsi | N::Blsr | N::Blsmsk => self.lowest_bit(mnemonic)?,
            N::Bextr => self.bextr()?,
            N::Bzhi => self.bzhi()?,
            N::Pdep => self.pdep()?,
            N::Pext => self.pext()?,
            N::Push => self.push()?,
            N::Pop => self.pop()?,
            N::Leave => self.leave()?,
            N::Lahf => self.lahf(),
            N::Sahf => self.sahf(),
            N::Clc => self.set_constant_flag(Flag::Carry, 0),
            N::Stc => self.set_constant_flag(Flag::Carry, 1),
            N::Cmc => self.cmc(),
            N::Cld => self.set_constant_flag(Flag::Direction, 0),
            N::Std => self.set_constant_flag(Flag::Direction, 1),
            N::Xlatb => self.xlat(),
            N::Nop
            | N::Endbr64
            | N::Endbr32
            | N::Pause
            | N::Lfence
            | N::Mfence
            | N::Sfence
            | N::Prefetchnta
            | N::Prefetcht0
            | N::Prefetcht1
            | N::Prefetcht2
            | N::Prefetchw
            | N::Prefetchwt1
            | N::Prefetch
            | N::Cldemote
            | N::Clflush
            | N::Clflushopt
            | N::Clwb => {}
            _ => return Ok(false),
        }
        Ok(true)
    }
}
