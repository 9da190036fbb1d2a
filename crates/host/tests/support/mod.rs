//! What the tests share: a folder with a compiled program and a pool, and a sink that keeps what it
//! gets.
#![allow(dead_code)] // each test file uses its part

use brownout_host::{LaunchConfig, Outcome, record};
use brownout_trace::EventSink;
use brownout_trace::event::{Event, EventKind, FileId};
use object::{Object, ObjectSegment, ObjectSymbol};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What every program of the tests begins with.
const PRELUDE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int need(long result) {
    if (result < 0) { perror("a call failed"); exit(9); }
    return (int)result;
}
static volatile uint64_t *map(const char *path) {
    int fd = need(open(path, O_RDWR));
    void *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) { perror("mmap"); exit(9); }
    close(fd);
    return at;
}
"#;

/// A folder of one test. Its path is free of symbolic links.
pub struct Folder {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
}

impl Folder {
    pub fn new() -> Folder {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("it is there");
        Folder {
            _folder: folder,
            path,
        }
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file and gives its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, content).expect("writable");
        path
    }

    /// A pool of one page, all zeros.
    pub fn pool(&self) -> PathBuf {
        self.file("pool", [0; 4096])
    }

    /// Compiles a C program; `body` comes behind the usual headers.
    pub fn program(&self, body: &str) -> PathBuf {
        let source = self.file("program.c", format!("{PRELUDE}{body}"));
        let program = self.join("program");
        let status = Command::new("cc")
            .args(["-O1", "-w", "-pthread", "-o"])
            .args([&program, &source])
            .status()
            .expect("a C compiler");
        assert!(status.success(), "the test's program does not compile");
        program
    }

    /// Compiles a program of `tests/programs`.
    pub fn shared_program(&self, name: &str) -> PathBuf {
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs");
        let program = self.join(name);
        let status = Command::new("cc")
            .args(["-O2", "-w", "-pthread", "-fno-strict-aliasing", "-o"])
            .arg(&program)
            .arg(programs.join(name).with_extension("c"))
            .status()
            .expect("a C compiler");
        assert!(status.success(), "{name} does not compile");
        program
    }

    /// A launch of `program` with its output in the file `out`, whose pool is tracked.
    pub fn launch<A: Into<OsString>>(
        &self,
        program: impl Into<OsString>,
        args: impl IntoIterator<Item = A>,
    ) -> LaunchConfig {
        let mut config = LaunchConfig::new(program, args);
        config.stdin = Some(File::open("/dev/null").expect("there"));
        config.stdout = Some(File::create(self.join("out")).expect("writable"));
        config.pm_globs = vec![self.join("pool").to_string_lossy().into_owned()];
        config
    }

    /// What the program printed.
    pub fn printed(&self) -> String {
        String::from_utf8(std::fs::read(self.join("out")).expect("readable")).expect("text")
    }
}

/// One event, as far as the tests look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub name: &'static str,
    pub pc: u64,
    pub context: u32,
    /// The kind with its fields, as `Debug` prints it.
    pub text: String,
    /// The value of a store of eight bytes.
    pub value: Option<u64>,
}

/// Keeps what it gets.
#[derive(Default)]
pub struct Keep {
    pub events: Vec<Seen>,
    pub new_files: Vec<(FileId, PathBuf)>,
    /// Calling contexts: parent and return address.
    contexts: HashMap<u32, (u32, u64)>,
    /// Mapped code: address, length, offset, path.
    modules: Vec<(u64, u64, u64, Vec<u8>)>,
}

impl EventSink for Keep {
    fn event(&mut self, event: &Event<'_>) -> std::io::Result<()> {
        let value = match &event.kind {
            EventKind::Store(access) => access.bytes.try_into().ok().map(u64::from_le_bytes),
            _ => None,
        };
        match event.kind {
            EventKind::Context {
                context,
                parent,
                return_addr,
            } => {
                self.contexts.insert(context.0, (parent.0, return_addr.0));
            }
            EventKind::Module {
                addr,
                len,
                offset,
                path,
                ..
            } => self.modules.push((addr.0, len, offset, path.to_vec())),
            _ => {}
        }
        self.events.push(Seen {
            name: event.kind.name(),
            pc: event.pc.0,
            context: event.context.0,
            text: format!("{:?}", event.kind),
            value,
        });
        Ok(())
    }

    fn new_file(&mut self, file: FileId, path: &Path) -> std::io::Result<()> {
        self.new_files.push((file, path.to_path_buf()));
        Ok(())
    }
}

impl Keep {
    /// Those of one kind, with their fields.
    pub fn of(&self, name: &str) -> Vec<&str> {
        let of_kind = |seen: &&Seen| seen.name == name;
        let events = self.events.iter().filter(of_kind);
        events.map(|seen| seen.text.as_str()).collect()
    }

    /// The functions of `program` that an event's stack goes through, innermost first. Those of
    /// libraries are left out.
    pub fn stack(&self, seen: &Seen, program: &Path) -> Vec<String> {
        let bytes = std::fs::read(program).expect("readable");
        let elf = object::File::parse(&*bytes).expect("a program");
        let of = |addr: u64| {
            let path = program.as_os_str().as_encoded_bytes();
            let (start, _, offset, _) = self
                .modules
                .iter()
                .find(|(start, len, _, of)| of == path && (*start..start + len).contains(&addr))?;
            let in_file = addr - start + offset;
            let linked = elf.segments().find_map(|segment| {
                let (at, len) = segment.file_range();
                (at..at + len)
                    .contains(&in_file)
                    .then(|| segment.address() + in_file - at)
            })?;
            let symbol = elf
                .symbols()
                .find(|s| (s.address()..s.address() + s.size()).contains(&linked))?;
            Some(symbol.name().expect("text").to_owned())
        };
        let mut functions = Vec::from_iter(of(seen.pc));
        let mut context = seen.context;
        while let Some(&(parent, return_addr)) = self.contexts.get(&context) {
            functions.extend(of(return_addr - 1));
            context = parent;
        }
        functions
    }

    /// The order of stores (by value), inputs and outputs (by size).
    pub fn story(&self) -> String {
        let mut story = Vec::new();
        for seen in &self.events {
            match (seen.name, seen.value) {
                ("store", Some(value)) => story.push(format!("store {value}")),
                ("input", _) => story.push("input".into()),
                ("output", _) => {
                    let size = seen.text.rsplit(' ').nth(1).unwrap_or_default();
                    story.push(format!("output {size}"));
                }
                _ => {}
            }
        }
        story.join(", ")
    }
}

/// Runs it to its end, which must be a good one.
pub fn run(config: &LaunchConfig) -> (Keep, Outcome) {
    let mut keep = Keep::default();
    let outcome = record(config, &mut keep).expect("it can be launched");
    assert_eq!(outcome.status, brownout_host::ExitStatus::Code(0));
    assert_eq!(outcome.stopped, None);
    assert_eq!(keep.events.last().map(|seen| seen.name), Some("end"));
    (keep, outcome)
}
