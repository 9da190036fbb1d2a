//! A tool in miniature: it runs a program, receives its requests and answers them.
//!
//! It stands in for the engine so that the bindings are tested against the contract alone: which
//! code, which arguments, in which order. A breakpoint replaces the first byte of each request in
//! the program's own code; requests in shared libraries are not seen.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// `rol rdi, 3; rol rdi, 13; rol rdi, 61; rol rdi, 51; xchg rbx, rbx`.
pub const PREAMBLE: [u8; 19] = [
    0x48, 0xc1, 0xc7, 0x03, 0x48, 0xc1, 0xc7, 0x0d, 0x48, 0xc1, 0xc7, 0x3d, 0x48, 0xc1, 0xc7, 0x33,
    0x48, 0x87, 0xdb,
];
const BREAKPOINT: u8 = 0xcc;

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Relative to the base.
    pub code: u32,
    /// The five arguments; 0 for the address of a string.
    pub args: [u64; 5],
    /// The string.
    pub text: String,
}

/// A stopped process that this thread traces.
struct Tracee {
    pid: i32,
    memory: File,
}

impl Tracee {
    #[expect(clippy::zombie_processes, reason = "`wait` sees it end")]
    fn start(program: &Path) -> Tracee {
        let mut command = Command::new(program);
        // SAFETY: one system call between fork and exec; it makes this thread the child's tracer.
        unsafe {
            command.pre_exec(|| match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let child = command.spawn().expect("the program starts");
        let pid = child.id() as i32;
        wait(pid).expect_err("it stops after exec");
        // SAFETY: our own child, stopped. It must not outlive a test that fails.
        unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_EXITKILL) };
        let memory = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .expect("we may write to what we trace");
        Tracee { pid, memory }
    }

    /// Puts a breakpoint on each request of the program's executable mappings.
    fn arm(&self, program: &Path) {
        let program = program.canonicalize().expect("it exists");
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).expect("it runs");
        for line in maps.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if !words[1].contains('x') || words.get(5) != program.to_str().as_ref() {
                continue;
            }
            let (start, end) = words[0].split_once('-').expect("a range");
            let [start, end] =
                [start, end].map(|hex| u64::from_str_radix(hex, 16).expect("an address"));
            let mut code = vec![0; (end - start) as usize];
            self.memory.read_exact_at(&mut code, start).expect("code");
            for (at, window) in code.windows(PREAMBLE.len()).enumerate() {
                if window == PREAMBLE {
                    self.memory
                        .write_all_at(&[BREAKPOINT], start + at as u64)
                        .expect("tracers may write to code");
                }
            }
        }
    }

    fn registers(&self) -> libc::user_regs_struct {
        // SAFETY: plain words; all zero is a value.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        // SAFETY: our own child, stopped; room for what the kernel writes.
        let result = unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &raw mut registers) };
        assert_eq!(result, 0);
        registers
    }

    fn set_registers(&self, registers: &libc::user_regs_struct) {
        // SAFETY: our own child, stopped.
        let result =
            unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.pid, 0, &raw const *registers) };
        assert_eq!(result, 0);
    }

    fn words<const N: usize>(&self, addr: u64) -> [u64; N] {
        let mut words = [0; N];
        for (index, word) in words.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            self.memory
                .read_exact_at(&mut bytes, addr + 8 * index as u64)
                .expect("the block can be read");
            *word = u64::from_le_bytes(bytes);
        }
        words
    }

    fn text(&self, addr: u64) -> String {
        let mut text = Vec::new();
        let mut byte = [0];
        loop {
            self.memory
                .read_exact_at(&mut byte, addr + text.len() as u64)
                .expect("the string can be read");
            match byte[0] {
                0 => return String::from_utf8(text).expect("tests speak UTF-8"),
                other => text.push(other),
            }
        }
    }

    fn go_on(&self) {
        // SAFETY: our own child, stopped.
        let result = unsafe { libc::ptrace(libc::PTRACE_CONT, self.pid, 0, 0) };
        assert_eq!(result, 0);
    }
}

/// The exit code, or the signal at which it stopped.
fn wait(pid: i32) -> Result<i32, i32> {
    let mut status = 0;
    // SAFETY: our own child; room for the status.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) {
        Ok(libc::WEXITSTATUS(status))
    } else if libc::WIFSTOPPED(status) {
        Err(libc::WSTOPSIG(status))
    } else {
        panic!("the program died: status {status:#x}")
    }
}

/// Runs a program and answers its requests; it must exit with 0. `answer` gets the code; names are
/// known iff `names_known`, all of them as 0x70 bytes at 0x7000.
pub fn receive(program: &Path, names_known: bool, answer: impl Fn(u32) -> u64) -> Vec<Received> {
    let tracee = Tracee::start(program);
    tracee.arm(program);
    let mut received = Vec::new();
    loop {
        tracee.go_on();
        match wait(tracee.pid) {
            Ok(code) => {
                assert_eq!(code, 0, "{}: after {received:#?}", program.display());
                return received;
            }
            Err(signal) => assert_eq!(signal, libc::SIGTRAP, "{}", program.display()),
        }
        let mut registers = tracee.registers();
        assert_eq!(registers.rdx, 0, "the default answer");
        let [code, mut args @ ..]: [u64; 6] = tracee.words(registers.rax);
        let code = u32::try_from(code - brownout_requests::ANNOTATION_BASE).expect("one of ours");
        let mut text = String::new();
        if code & 0x8000 != 0 {
            text = tracee.text(args[0]);
            args[0] = 0;
        }
        registers.rdx = answer(code);
        if code == brownout_requests::annotation::FIND_VARIABLE && names_known {
            let found = [0x7000u64.to_le_bytes(), 0x70u64.to_le_bytes()].concat();
            tracee
                .memory
                .write_all_at(&found, args[1])
                .expect("room for two words");
            args[1] = 0;
            registers.rdx = 1;
        }
        registers.rip += PREAMBLE.len() as u64 - 1;
        tracee.set_registers(&registers);
        received.push(Received { code, args, text });
    }
}
