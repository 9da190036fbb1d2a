//! Prints code addresses of its own, and where its code is mapped.

mod pool {
    #[inline(always)]
    fn push() -> usize {
        let pc: usize;
        // SAFETY: reads the instruction pointer, nothing else.
        unsafe { std::arch::asm!("lea {0}, [rip + 2f]", "2: nop", out(reg) pc) }; /* PC */
        pc
    }

    #[inline(never)]
    pub fn insert<T>(_: T) -> usize {
        let pc = push(); /* OUTER */
        std::hint::black_box(pc)
    }
}

fn main() {
    println!("pc {:#x}", pool::insert(1u8));
    print!("{}", std::fs::read_to_string("/proc/self/maps").unwrap());
}
