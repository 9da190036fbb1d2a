//! Real programs, compiled here, run, and asked where they were.
//!
//! Each program prints addresses of its own code together with its `/proc/self/maps`, so the whole
//! way from a mapped address to a source line is tested against the real loader.

use brownout_random::Random;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use brownout_symbols::{CodeAddr, Frame, Options, Symbolizer};
use brownout_trace::event::{ProcessId, TargetAddr};
use tempfile::TempDir;

const PROCESS: ProcessId = ProcessId(1);

/// A program that was run once.
struct Ran {
    symbolizer: Symbolizer,
    source: String,
    pc: Option<TargetAddr>,
    return_addr: Option<TargetAddr>,
    /// Name of the source file in frames.
    source_name: String,
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/targets")
        .join(name)
}

fn command(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {stderr}");
}

/// Compiles `tests/targets/<name>` to `<folder>/program`.
fn compile(folder: &Path, compiler: &str, name: &str, flags: &[&str]) -> PathBuf {
    let out = folder.join("program");
    let source = source(name);
    let mut args = flags.to_vec();
    args.extend([source.to_str().unwrap(), "-o", out.to_str().unwrap()]);
    command(compiler, &args);
    out
}

/// No place but the given ones is searched.
fn only(debug_roots: Vec<PathBuf>) -> Options {
    Options {
        debug_roots,
        debuginfod_cache: None,
        names_only: Vec::new(),
    }
}

fn run(program: &Path, name: &str, options: Options) -> Ran {
    let output = Command::new(program).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let addr = |key: &str| {
        let hex = text
            .lines()
            .find_map(|line| line.strip_prefix(key))?
            .strip_prefix("0x")?;
        Some(TargetAddr(u64::from_str_radix(hex, 16).unwrap()))
    };
    let mut symbolizer = Symbolizer::new(options);
    for line in text.lines().filter(|line| line.contains(" r-xp ")) {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next().unwrap().split_once('-').unwrap();
        let hex = |text| u64::from_str_radix(text, 16).unwrap();
        let offset = hex(fields.nth(1).unwrap());
        let Some(path) = fields.nth(2) else { continue };
        let (start, end) = (hex(start), hex(end));
        symbolizer.add_module(
            PROCESS,
            TargetAddr(start),
            end - start,
            offset,
            path.as_bytes(),
        );
    }
    Ran {
        symbolizer,
        source: fs::read_to_string(source(name)).unwrap(),
        pc: addr("pc "),
        return_addr: addr("return "),
        source_name: name.to_owned(),
    }
}

impl Ran {
    fn at_pc(&mut self) -> Arc<[Frame]> {
        self.symbolizer
            .frames(PROCESS, CodeAddr::Pc(self.pc.unwrap()))
    }

    fn at_return(&mut self) -> Arc<[Frame]> {
        self.symbolizer
            .frames(PROCESS, CodeAddr::Return(self.return_addr.unwrap()))
    }

    /// Checks functions and the lines that carry the given markers, innermost first.
    #[track_caller]
    fn check(&self, frames: &[Frame], expected: &[(&str, &str)]) {
        let shown: Vec<String> = frames.iter().map(Frame::to_string).collect();
        assert_eq!(frames.len(), expected.len(), "{shown:?}");
        for (index, (frame, (function, marker))) in frames.iter().zip(expected).enumerate() {
            let marker = format!("/* {marker} */");
            let line = 1 + self
                .source
                .lines()
                .position(|line| line.contains(&marker))
                .unwrap();
            let location = frame.location.as_ref().expect("a source location");
            assert_eq!(frame.function.as_deref(), Some(*function), "{shown:?}");
            assert!(location.file.ends_with(&self.source_name), "{shown:?}");
            assert_eq!(location.line, Some(line as u32), "{shown:?}");
            assert_eq!(frame.inlined, index + 1 < frames.len(), "{shown:?}");
            assert_eq!(frame.module_name().as_deref(), Some("program"));
        }
    }

    #[track_caller]
    fn check_c(&mut self) {
        let frames = self.at_pc();
        self.check(
            &frames,
            &[("deepest", "PC"), ("middle", "MIDDLE"), ("outer", "OUTER")],
        );
        let frames = self.at_return();
        self.check(&frames, &[("caller", "CALL")]);
    }
}

#[test]
fn c_with_inlining_however_it_is_linked() {
    let kinds: [&[&str]; 4] = [
        &["-fPIE", "-pie"],
        &["-no-pie", "-fno-pie"],
        &["-static", "-no-pie"],
        &["-fPIE", "-pie", "-gz"],
    ];
    for kind in kinds {
        let folder = TempDir::new().unwrap();
        let program = compile(
            folder.path(),
            "cc",
            "inline.c",
            &[&["-g", "-O2"], kind].concat(),
        );
        run(&program, "inline.c", only(vec![])).check_c();
    }
}

#[test]
fn every_dwarf_version() {
    for version in ["-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
        let folder = TempDir::new().unwrap();
        let program = compile(folder.path(), "cc", "inline.c", &["-g", version, "-O2"]);
        run(&program, "inline.c", only(vec![])).check_c();
    }
}

#[test]
fn cpp_names_are_demangled() {
    let folder = TempDir::new().unwrap();
    let program = compile(folder.path(), "c++", "inline.cc", &["-g", "-O2"]);
    let mut ran = run(&program, "inline.cc", only(vec![]));
    let frames = ran.at_pc();
    let (push, insert) = ("pool::list<int>::push(int)", "pool::list<int>::insert(int)");
    ran.check(&frames, &[(push, "PC"), (insert, "OUTER")]);
    let frames = ran.at_return();
    ran.check(&frames, &[("pool::list<int>::call()", "CALL")]);
    assert!(frames[0].location.as_ref().unwrap().column.is_some());

    // The same names come from the symbol table.
    command("strip", &["--strip-debug", program.to_str().unwrap()]);
    let frames = run(&program, "inline.cc", only(vec![])).at_pc();
    assert_eq!(frames.len(), 1);
    // The compiler may have made a specialised copy, which the name then says.
    assert!(frames[0].function.as_deref().unwrap().starts_with(insert));
    assert!(
        frames[0].to_string().ends_with(" (program)"),
        "{}",
        frames[0]
    );
}

#[test]
fn rust_names_are_demangled() {
    let manglings: [(&[&str], &str); 2] = [
        (
            &["-Csymbol-mangling-version=v0"],
            "inline::pool::insert::<u8>",
        ),
        (&[], "inline::pool::insert"),
    ];
    for (mangling, insert) in manglings {
        let folder = TempDir::new().unwrap();
        let flags = [&["-Copt-level=2", "-g", "--edition=2021"], mangling].concat();
        let program = compile(folder.path(), "rustc", "inline.rs", &flags);
        let mut ran = run(&program, "inline.rs", only(vec![]));
        let frames = ran.at_pc();
        // Which mangling is the default depends on the compiler; its generic arguments may show.
        let shown = frames
            .last()
            .and_then(|frame| frame.function.clone())
            .unwrap();
        assert!(shown.starts_with(insert), "{shown}");
        ran.check(&frames, &[("inline::pool::push", "PC"), (&shown, "OUTER")]);
    }
}

/// A stripped program, and its debug information in `<folder>/program.debug`.
fn split(folder: &Path, flags: &[&str]) -> (PathBuf, PathBuf) {
    let program = compile(folder, "cc", "inline.c", &[&["-g", "-O2"], flags].concat());
    let debug = folder.join("program.debug");
    let (p, d) = (program.to_str().unwrap(), debug.to_str().unwrap());
    command("objcopy", &["--only-keep-debug", p, d]);
    command("strip", &["--strip-all", p]);
    (program, debug)
}

fn build_id(program: &Path) -> String {
    let output = Command::new("readelf")
        .arg("-n")
        .arg(program)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_once("Build ID: ")
        .unwrap()
        .1
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned()
}

#[test]
fn stripped_programs_without_debug_file_give_module_and_address() {
    let folder = TempDir::new().unwrap();
    let (program, _) = split(folder.path(), &["-no-pie", "-Wl,--build-id=none"]);
    let mut ran = run(&program, "inline.c", only(vec![]));
    let frames = ran.at_pc();
    assert_eq!(frames.len(), 1);
    // In a program at a fixed address both ways of counting agree.
    let pc = ran.pc.unwrap();
    assert_eq!(frames[0].to_string(), format!("program+{pc}"));
}

#[test]
fn debug_file_by_build_id() {
    for kind in ["-pie", "-no-pie"] {
        let folder = TempDir::new().unwrap();
        let (program, debug) = split(folder.path(), &[kind, "-Wl,--build-id"]);
        let id = build_id(&program);
        let root = folder.path().join("root");
        let place = root.join(".build-id").join(&id[..2]);
        fs::create_dir_all(&place).unwrap();
        let place = place.join(format!("{}.debug", &id[2..]));
        fs::rename(debug, &place).unwrap();
        run(
            &program,
            "inline.c",
            only(vec!["/no/such/root".into(), root.clone()]),
        )
        .check_c();

        // Somebody else's debug file under the right name is not believed.
        let other = TempDir::new().unwrap();
        let (_, other_debug) = split(other.path(), &["-static", "-Wl,--build-id"]);
        fs::copy(other_debug, &place).unwrap();
        let frames = run(&program, "inline.c", only(vec![root])).at_pc();
        assert!(frames[0].location.is_none());
    }
}

#[test]
fn debug_file_from_the_debuginfod_cache() {
    let folder = TempDir::new().unwrap();
    let (program, debug) = split(folder.path(), &["-Wl,--build-id"]);
    let cache = folder.path().join("cache");
    let place = cache.join(build_id(&program));
    fs::create_dir_all(&place).unwrap();
    fs::rename(debug, place.join("debuginfo")).unwrap();
    let options = Options {
        debug_roots: vec![],
        debuginfod_cache: Some(cache),
        names_only: Vec::new(),
    };
    run(&program, "inline.c", options).check_c();
}

#[test]
fn debug_file_by_link() {
    // With a build-id that identifies the file, and without, where the CRC must.
    for build_id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        let folder = TempDir::new().unwrap();
        let (program, debug) = split(folder.path(), &[build_id]);
        let link = format!("--add-gnu-debuglink={}", debug.to_str().unwrap());
        command("objcopy", &[&link, program.to_str().unwrap()]);
        let root = folder.path().join("root");
        let real = folder.path().canonicalize().unwrap();
        let below_root = root.join(real.strip_prefix("/").unwrap());
        let hidden = folder.path().join(".debug");
        fs::create_dir_all(&below_root).unwrap();
        fs::create_dir_all(&hidden).unwrap();

        run(&program, "inline.c", only(vec![])).check_c();
        let (below_root, hidden) = (
            below_root.join("program.debug"),
            hidden.join("program.debug"),
        );
        fs::rename(&debug, &hidden).unwrap();
        run(&program, "inline.c", only(vec![])).check_c();
        fs::rename(&hidden, &below_root).unwrap();
        run(&program, "inline.c", only(vec![root.clone()])).check_c();

        let mut bytes = fs::read(&below_root).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&below_root, bytes).unwrap();
        let frames = run(&program, "inline.c", only(vec![root])).at_pc();
        let believed = frames[0].location.is_some();
        assert_eq!(
            believed,
            build_id == "-Wl,--build-id",
            "the CRC decides where no build-id does"
        );
    }
}

#[test]
fn mini_symbol_table() {
    let folder = TempDir::new().unwrap();
    let (program, debug) = split(folder.path(), &["-fPIE", "-pie"]);
    let mini = folder.path().join("mini");
    let (d, m) = (debug.to_str().unwrap(), mini.to_str().unwrap());
    command(
        "objcopy",
        &[
            "-S",
            "--remove-section=.comment",
            "--keep-symbol=outer",
            d,
            m,
        ],
    );
    command("xz", &["-k", m]);
    let section = format!(".gnu_debugdata={m}.xz");
    command(
        "objcopy",
        &["--add-section", &section, program.to_str().unwrap()],
    );
    let frames = run(&program, "inline.c", only(vec![])).at_pc();
    assert_eq!(frames[0].function.as_deref(), Some("outer"));
    assert!(frames[0].function_offset.is_some());
}

#[test]
fn a_shared_library_without_debug_information_uses_its_dynamic_symbols() {
    let folder = TempDir::new().unwrap();
    let library = folder.path().join("program");
    let source = source("inline.c");
    let args = [
        "-O2",
        "-shared",
        "-fPIC",
        "-s",
        source.to_str().unwrap(),
        "-o",
    ];
    command(
        "cc",
        &[args.as_slice(), &[library.to_str().unwrap()]].concat(),
    );
    let nm = Command::new("nm").arg("-D").arg(&library).output().unwrap();
    let nm = String::from_utf8(nm.stdout).unwrap();
    let outer = nm.lines().find(|line| line.ends_with(" T outer")).unwrap();
    let outer = u64::from_str_radix(outer.split(' ').next().unwrap(), 16).unwrap();
    let mut symbolizer = Symbolizer::new(only(vec![]));
    let path = library.to_str().unwrap().as_bytes();
    // Linkers give code the same offset as address in such a small library.
    symbolizer.add_module(PROCESS, TargetAddr(0x7f00_0000_0000), 1 << 20, 0, path);
    let pc = TargetAddr(0x7f00_0000_0000 + outer + 1);
    let frames = symbolizer.frames(PROCESS, CodeAddr::Pc(pc));
    assert_eq!(frames[0].to_string(), "outer+0x1 (program)");
}

/// Truncated at many places and with bytes overwritten, a file may lose its names but nothing else.
#[test]
fn damaged_files_cause_no_panic() {
    let folder = TempDir::new().unwrap();
    let program = compile(folder.path(), "c++", "inline.cc", &["-g", "-O2"]);
    let ran = run(&program, "inline.cc", only(vec![]));
    let whole = fs::read(&program).unwrap();
    let damaged = folder.path().join("damaged");
    let text = whole.len() as u64;

    let ask = |bytes: &[u8]| {
        fs::write(&damaged, bytes).unwrap();
        let mut symbolizer = Symbolizer::new(only(vec![]));
        let path = damaged.to_str().unwrap().as_bytes();
        symbolizer.add_module(PROCESS, TargetAddr(0), text, 0, path);
        let mut named = 0;
        for addr in (0x1000..0x2000).step_by(0x40) {
            let frames = symbolizer.frames(PROCESS, CodeAddr::Pc(TargetAddr(addr)));
            assert!(!frames.is_empty());
            named += usize::from(frames[0].function.is_some());
        }
        named
    };
    assert!(
        ask(&whole) > 5,
        "the undamaged file must have names, else this test shows nothing"
    );
    assert!(ran.pc.is_some());

    for part in 0..60 {
        ask(&whole[..whole.len() * part / 60]);
    }
    let mut random = Random::new(0x5eed);
    for round in 0..200 {
        let mut bytes = whole.clone();
        for _ in 0..1 << (round % 10) {
            let at = random.index(bytes.len());
            bytes[at] = random.below(256) as u8;
        }
        ask(&bytes);
    }
}

/// Compiled and linked in two steps, as a build does that keeps its split DWARF.
fn compile_split(folder: &Path, flags: &[&str]) -> PathBuf {
    let (object, program) = (folder.join("unit.o"), folder.join("program"));
    let (object, out) = (object.to_str().unwrap(), program.to_str().unwrap());
    let source = source("inline.c");
    let source = source.to_str().unwrap();
    command(
        "cc",
        &[flags, &["-O2", "-gsplit-dwarf", "-c", source, "-o", object]].concat(),
    );
    command("cc", &["-g", object, "-o", out]);
    program
}

#[test]
fn split_dwarf_has_inlined_frames() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let folder = TempDir::new().unwrap();
        let program = compile_split(folder.path(), &[version]);
        run(&program, "inline.c", only(vec![])).check_c();

        // The whole build has moved: then the files are beside the program.
        let other = TempDir::new().unwrap();
        for name in ["program", "unit.dwo"] {
            fs::rename(folder.path().join(name), other.path().join(name)).unwrap();
        }
        let program = other.path().join("program");
        run(&program, "inline.c", only(vec![])).check_c();

        // A file of another build is not believed, and without one there is the symbol table, and
        // the line.
        let unit = other.path().join("unit.dwo");
        compile_split(folder.path(), &[version, "-fno-inline"]);
        fs::copy(folder.path().join("unit.dwo"), &unit).unwrap();
        fs::remove_file(folder.path().join("unit.dwo")).unwrap();
        for _ in 0..2 {
            let frames = run(&program, "inline.c", only(vec![])).at_pc();
            assert_eq!(frames.len(), 1);
            assert_eq!(frames[0].function.as_deref(), Some("outer"));
            assert!(frames[0].location.is_some());
            let _ = fs::remove_file(&unit);
        }
    }
}

#[test]
fn split_dwarf_in_a_package() {
    let folder = TempDir::new().unwrap();
    // The form that every version of binutils can pack.
    let program = compile_split(folder.path(), &["-gdwarf-4"]);
    let package = folder.path().join("program.dwp");
    let (program_name, package) = (program.to_str().unwrap(), package.to_str().unwrap());
    command("dwp", &["-e", program_name, "-o", package]);
    fs::remove_file(folder.path().join("unit.dwo")).unwrap();
    run(&program, "inline.c", only(vec![])).check_c();
}
