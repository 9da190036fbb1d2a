//! This process as the subject: its images, its memory, and a compiled C library.

use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use brownout_unwind::{
    CodeMapping, Cursor, FrameRule, LookupPc, Memory, Module, PcKind, Step, Stop,
    module_from_image, rule_for, step,
};

/// A loaded image.
#[derive(Clone, Debug)]
pub struct Image {
    pub path: String,
    pub module: Module,
    /// The same facts by an independent way, for the oracle.
    pub eh_frame_hdr: &'static [u8],
    /// The rest of the segment from the end of `.eh_frame_hdr`: `.eh_frame` follows it.
    pub after_hdr: &'static [u8],
}

/// All loaded images that have unwind tables.
pub fn images() -> Vec<Image> {
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        images: *mut c_void,
    ) -> c_int {
        // SAFETY: `dl_iterate_phdr` hands out a valid info, and our pointer to the vector.
        let (info, images) = unsafe { (&*info, &mut *images.cast::<Vec<Image>>()) };
        // SAFETY: as above; the name is a C string.
        let path = unsafe { CStr::from_ptr(info.dlpi_name) }
            .to_string_lossy()
            .into_owned();
        // SAFETY: as above.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let Some(tables) = headers
            .iter()
            .find(|header| header.p_type == libc::PT_GNU_EH_FRAME)
        else {
            return 0;
        };
        let load = |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD;
        let first = headers.iter().find(load).expect("an image has segments");
        let base = info.dlpi_addr + first.p_vaddr;
        let text = headers
            .iter()
            .filter(load)
            .find(|header| header.p_flags & libc::PF_X != 0)
            .expect("an image has code");
        let within = text.p_vaddr % 4096;
        let code = CodeMapping {
            start: info.dlpi_addr + text.p_vaddr - within,
            offset: text.p_offset - within,
        };
        let pc = LookupPc::new(info.dlpi_addr + text.p_vaddr, PcKind::Exact);
        // SAFETY: the loader mapped the image; these tests never unload one.
        let module = unsafe { module_from_image(base, 4096, code, pc) }
            .unwrap_or_else(|| panic!("{path}: no module though it has tables"));
        let segment = headers
            .iter()
            .filter(load)
            .find(|h| (h.p_vaddr..h.p_vaddr + h.p_filesz).contains(&tables.p_vaddr))
            .expect("the tables are in a segment");
        let (start, bytes) = (info.dlpi_addr + tables.p_vaddr, tables.p_memsz as usize);
        let rest = (segment.p_vaddr + segment.p_filesz - tables.p_vaddr) as usize;
        // SAFETY: mapped by the loader, read-only, and never unloaded.
        let all = unsafe { std::slice::from_raw_parts(start as *const u8, rest) };
        let (eh_frame_hdr, after_hdr) = all.split_at(bytes);
        images.push(Image {
            path,
            module,
            eh_frame_hdr,
            after_hdr,
        });
        0
    }
    let mut images = Vec::<Image>::new();
    // SAFETY: the callback gets back the pointer to our vector, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut images).cast()) };
    images
}

/// Memory of this process, read by a system call that fails instead of faulting.
pub struct OwnMemory;

impl Memory for OwnMemory {
    fn read_u64(&self, addr: u64) -> Option<u64> {
        let mut value = 0_u64;
        let local = libc::iovec {
            iov_base: (&raw mut value).cast(),
            iov_len: 8,
        };
        let remote = libc::iovec {
            iov_base: addr as *mut c_void,
            iov_len: 8,
        };
        // SAFETY: the kernel checks the remote range and writes eight bytes at most to `value`.
        let bytes = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        (bytes == 8).then_some(value)
    }
}

/// The rule for an address, from whichever module contains it.
pub fn rule_in(modules: &[Module], pc: LookupPc) -> FrameRule {
    modules
        .iter()
        .find(|module| module.contains(pc))
        .map_or(FrameRule::Unknown, |module| rule_for(module, pc))
}

pub fn modules() -> Vec<Module> {
    images().iter().map(|image| image.module).collect()
}

/// The whole stack from a cursor, and why it ended.
pub fn unwind(modules: &[Module], mut cursor: Cursor) -> (Vec<(Step, PcKind)>, Stop) {
    let mut steps = Vec::new();
    loop {
        assert!(steps.len() < 1000, "endless stack: {steps:x?}");
        match step(
            rule_in(modules, cursor.lookup_pc()),
            &mut cursor,
            &OwnMemory,
        ) {
            Ok(step) => steps.push((step, cursor.kind)),
            Err(stop) => return (steps, stop),
        }
    }
}

/// The registers of the function that this is inlined into.
#[inline(always)]
pub fn here() -> Cursor {
    let (pc, rsp, rbp): (u64, u64, u64);
    // SAFETY: reads registers only.
    unsafe {
        std::arch::asm!(
            "lea {}, [rip]", "mov {}, rsp", "mov {}, rbp",
            out(reg) pc, out(reg) rsp, out(reg) rbp,
            options(nomem, nostack, preserves_flags),
        );
    }
    Cursor::innermost(pc, rsp, rbp)
}

/// The C library, compiled and loaded once. It binds lazily, so that calls run through the whole of
/// its procedure linkage table, and it realigns its stack.
pub fn c_library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let file = format!("frames-{}.so", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/frames.c");
        let status = Command::new("cc")
            .args([
                "-shared",
                "-fPIC",
                "-O2",
                "-fcf-protection=none",
                "-Wl,-z,lazy",
            ])
            .args(["-fno-optimize-sibling-calls", "-o"])
            .arg(&path)
            .arg(source)
            .status()
            .expect("the C compiler that links Rust programs runs");
        assert!(status.success());
        let library = load(&path).expect("the library just compiled loads");
        std::fs::remove_file(&path).expect("the file just made can be removed");
        library
    })
}

/// Loads a library for good; None if there is no such library.
pub fn load(path: &Path) -> Option<Library> {
    let path = path.to_str().expect("paths in this test are plain");
    let c_path = CString::new(path).unwrap();
    // SAFETY: the libraries that these tests load have no unusual initialisers.
    let handle = unsafe { libc::dlopen(c_path.as_ptr(), libc::RTLD_LAZY) };
    (!handle.is_null()).then(|| Library {
        handle: handle as usize,
        path: path.to_owned(),
    })
}

/// A library that stays loaded.
pub struct Library {
    handle: usize,
    path: String,
}

impl Library {
    pub fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is from `dlopen` and never closed.
        let symbol = unsafe { libc::dlsym(self.handle as *mut c_void, name.as_ptr()) };
        assert!(!symbol.is_null(), "{name:?}");
        symbol
    }

    pub fn image(&self) -> Image {
        images()
            .into_iter()
            .find(|image| image.path == self.path)
            .expect("it is loaded")
    }
}
