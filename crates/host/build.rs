//! Builds the in-target engine and lays it out as the flat image that the launcher maps.
//!
//! The engine is a `no_std` program of its own with its own link arguments, so it is built by a
//! nested cargo call, in a folder of its own. The result is one block of bytes with all relocations
//! applied for its fixed address.

use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Keep in step with `brownout_abi::ENGINE_BASE`; `lib.rs` asserts that.
const ENGINE_BASE: u64 = 0x5658_0000_0000;

fn main() {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let crates = here.parent().expect("in crates/").to_path_buf();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    for name in [
        "engine", "abi", "kinds", "requests", "schedule", "insn", "unwind", "syscalls",
    ] {
        for part in ["src", "Cargo.toml"] {
            println!(
                "cargo::rerun-if-changed={}",
                crates.join(name).join(part).display()
            );
        }
    }
    println!(
        "cargo::rerun-if-changed={}",
        crates.join("engine/Cargo.lock").display()
    );

    let target = out.join("engine-target");
    let status = Command::new(std::env::var_os("CARGO").expect("cargo sets it"))
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(crates.join("engine/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        // The outer build's flags and wrappers are for the outer build.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_BUILD_TARGET")
        .env(
            "RUSTFLAGS",
            "-C relocation-model=pic -C target-cpu=x86-64 -C link-arg=-nostdlib -C link-arg=-nostartfiles \
             -C link-arg=-static-pie -C link-arg=-Wl,--no-dynamic-linker",
        )
        .status()
        .expect("cargo runs");
    assert!(
        status.success(),
        "the engine does not build; if its Cargo.lock is behind, run \
         `cargo update --workspace --manifest-path crates/engine/Cargo.toml`"
    );
    let elf = std::fs::read(target.join("release/brownout-engine")).expect("just built");
    flatten(&elf, &out);
}

fn flatten(bytes: &[u8], out: &Path) {
    let elf = ElfFile64::<Endianness>::parse(bytes).expect("an ELF file");
    let endian = elf.endian();
    let mut image = Vec::new();
    let mut memory = 0u64;
    for ph in elf.elf_program_headers() {
        if ph.p_type(endian) != object::elf::PT_LOAD {
            continue;
        }
        let (at, file, mem) = (ph.p_vaddr(endian), ph.p_filesz(endian), ph.p_memsz(endian));
        memory = memory.max(at + mem);
        if image.len() < (at + file) as usize {
            image.resize((at + file) as usize, 0);
        }
        let from = ph.p_offset(endian) as usize;
        image[at as usize..(at + file) as usize]
            .copy_from_slice(&bytes[from..from + file as usize]);
    }
    if let Some(relocations) = elf.dynamic_relocations() {
        for (at, r) in relocations {
            assert_eq!(
                r.flags(),
                object::RelocationFlags::Elf {
                    r_type: object::elf::R_X86_64_RELATIVE
                },
                "the engine must be self-contained"
            );
            let value = ENGINE_BASE.wrapping_add(r.addend() as u64);
            if image.len() < at as usize + 8 {
                image.resize(at as usize + 8, 0);
            }
            image[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    let entry = elf
        .symbols()
        .find(|s| s.name() == Ok("_start"))
        .map_or(elf.entry(), |s| s.address());
    image.resize(image.len().next_multiple_of(4096), 0);
    std::fs::write(out.join("engine.bin"), &image).expect("writable");
    std::fs::write(
        out.join("engine.rs"),
        format!(
            "/// Offset of the first instruction.\npub const ENTRY: u64 = {entry:#x};\n\
             /// Bytes in memory, zero-filled behind the image.\npub const MEMORY: u64 = {:#x};\n\
             /// Address that the image is relocated for.\npub const BASE: u64 = {ENGINE_BASE:#x};\n",
            (memory + 4095) & !4095
        ),
    )
    .expect("writable");
}
