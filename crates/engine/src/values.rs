//! Values in the program's memory, tracked or not, that engine code reads and writes in the
//! kernel's stead.

use crate::address::ProgramAddr;
use crate::context::ThreadContext;
use crate::copy::{read_memory, write_memory};
use crate::pm::{kernel_wrote, reach};

/// Reads a plain value from program memory.
pub fn read_value<T: Copy>(addr: u64, out: &mut T) -> bool {
    let n = core::mem::size_of::<T>();
    // SAFETY: `T` is plain data here; its bytes are overwritten whole or not used.
    read_memory(reach(ProgramAddr::new(addr)), unsafe {
        core::slice::from_raw_parts_mut(out as *mut T as *mut u8, n)
    })
}

/// Writes a plain value to program memory.
pub fn write_value<T: Copy>(ctx: &mut ThreadContext, addr: u64, value: &T) -> bool {
    let n = core::mem::size_of::<T>();
    // SAFETY: reads the bytes of a plain value.
    let bytes = unsafe { core::slice::from_raw_parts(value as *const T as *const u8, n) };
    let ok = write_memory(reach(ProgramAddr::new(addr)), bytes);
    if ok {
        kernel_wrote(ctx, addr, n as u64);
    }
    ok
}

/// The string at `addr`, without its NUL. None if it cannot be read or is longer than a path can
/// be.
pub fn read_path(addr: u64) -> Option<alloc::vec::Vec<u8>> {
    const PATH_MAX: usize = 4096;
    let mut path = alloc::vec::Vec::new();
    while path.len() < PATH_MAX {
        let at = addr.wrapping_add(path.len() as u64);
        let mut piece = [0u8; 256];
        // Not beyond the page: the next one need not exist.
        let piece = &mut piece[..(4096 - at as usize % 4096).min(256)];
        if !read_memory(reach(ProgramAddr::new(at)), piece) {
            return None;
        }
        match piece.iter().position(|&byte| byte == 0) {
            Some(end) => {
                path.extend_from_slice(&piece[..end]);
                return Some(path);
            }
            None => path.extend_from_slice(piece),
        }
    }
    None
}
