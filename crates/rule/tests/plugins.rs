//! Rules in shared libraries: the shipped examples, one that panics, one in C, and everything that
//! is none.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::null_mut;
use std::sync::Mutex;

use brownout_rule::abi::{HostTable, RawBytes, RawEvent, RawFinding, RawInfo, RawStatus};
use brownout_rule::host::{Finding, HostServices, LoadError, Plugin};
use brownout_rule::testing::Bench;
use brownout_rule::{
    Access, Address, ByteRange, Event, EventIndex, FenceKind, FileId, Info, Kind, KindCode, Place,
    Pm, Reporter, Rule, Severity, Site, State, Status, ThreadId,
};
use tempfile::TempDir;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Builds a rule as its author would; returns the library.
fn build(folder: &str, library: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugins");
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--manifest-path"])
        .arg(Path::new(CRATE).join(folder).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .expect("cargo starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{folder} does not build:\n{errors}"
    );
    target.join("debug").join(format!("lib{library}.so"))
}

fn example(name: &str) -> PathBuf {
    build(
        &format!("../../examples/rules/{name}"),
        &name.replace('-', "_"),
    )
}

/// Builds `plugins/rule.c` with macros.
fn compile(macros: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("librule.so");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
        .arg(&library)
        .arg(Path::new(CRATE).join("tests/plugins/rule.c"))
        .arg("-I")
        .arg(Path::new(CRATE).join("../../include"))
        .args(macros.iter().map(|m| format!("-D{m}")))
        // A variant may leave a function unused.
        .arg("-Wno-unused-function")
        .status()
        .expect("cc starts: it is what Rust links with");
    assert!(status.success());
    (folder, library)
}

/// The rule in C that the manual shows, compiled as it says, does what it says.
#[test]
fn the_rule_in_c_of_the_manual_works() {
    let manual = std::fs::read_to_string(Path::new(CRATE).join("../../docs/custom-rules.md"));
    let manual = manual.expect("it is there");
    let mut blocks = manual.split("\n```c\n").skip(1);
    let (Some(block), None) = (blocks.next(), blocks.next()) else {
        panic!("not one block of C");
    };
    let (source, _) = block.split_once("\n```\n").expect("an end");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("transactions_only.c"), source).expect("a write");
    let line = "cc -shared -fPIC -o transactions_only.so transactions_only.c";
    assert!(manual.contains(&format!("```sh\n{line}\n")));
    let mut words = line.split(' ');
    let status = Command::new(words.next().expect("a compiler"))
        .args(words)
        .args(["-Wall", "-Werror", "-I"])
        .arg(Path::new(CRATE).join("../../include"))
        .current_dir(folder.path())
        .status();
    assert!(status.expect("cc starts").success());
    let mut bench = bench(&folder.path().join("transactions_only.so"), "");
    assert_eq!(bench.info().id, "transactions-only");
    let store = || {
        Kind::Store(Access {
            place: place(0x1000, 8),
            bytes: &[],
        })
    };
    bench.answers().in_transaction = vec![ThreadId(1)];
    bench.event(store());
    assert_eq!(bench.findings(), []);
    bench.event_of(ThreadId(2), store());
    bench.end();
    let [finding] = bench.findings() else {
        panic!("{:#?}", bench.findings());
    };
    assert_eq!(finding.message, "a store outside any transaction");
    assert_eq!(finding.events.len(), 1);
    assert_eq!(finding.events[0].text, "it is stored here");
}

/// The header for C compiles alone, as C and as C++, and has the numbers that the tool has.
#[test]
fn the_header_says_what_the_tool_says() {
    let path = Path::new(CRATE).join("../../include/brownout_rule.h");
    let text = std::fs::read_to_string(&path).expect("it is there");
    let value = |name: &str| {
        let mut lines = text.lines().map(str::trim_start);
        let line = lines.find(|line| line.starts_with(&format!("{name} = ")));
        let value = line.and_then(|line| line.split([' ', ',']).nth(2));
        value.and_then(|value| value.parse::<u32>().ok())
    };
    for (name, code) in KindCode::NAMES {
        assert_eq!(value(&format!("BROWNOUT_RULE_KIND_{name}")), Some(code.0));
    }
    let kinds = text.matches("BROWNOUT_RULE_KIND_").count();
    assert_eq!(kinds, KindCode::NAMES.len());
    let folder = tempfile::tempdir().expect("a folder");
    for (name, standard) in [("a.c", "-std=c99"), ("a.cc", "-std=c++11")] {
        let source = folder.path().join(name);
        std::fs::write(&source, "#include \"brownout_rule.h\"\n").expect("a write");
        let status = Command::new("cc")
            .args([
                "-fsyntax-only",
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Werror",
                standard,
                "-I",
            ])
            .arg(Path::new(CRATE).join("../../include"))
            .arg(&source)
            .status();
        assert!(status.expect("cc starts").success(), "{standard}");
    }
}

fn load_error(library: &Path, options: &str) -> String {
    Plugin::load(library, options)
        .expect_err("must not load")
        .to_string()
}

fn bench(library: &Path, options: &str) -> Bench {
    match Plugin::load(library, options) {
        Ok(plugin) => Bench::with(plugin),
        Err(error) => panic!("{error}"),
    }
}

fn place(address: u64, len: u64) -> Place {
    Place::new(Address(address), len, FileId(1), address)
}

/// By address only.
fn bytes(address: u64, len: u64) -> Place {
    ByteRange::new(Address(address), len).into()
}

fn store_site(index: u64) -> Site {
    Site {
        index: EventIndex(index),
        thread: ThreadId(2),
        pc: Address(0x401000),
        ..Site::default()
    }
}

#[test]
fn redundant_undo_log() {
    let mut bench = bench(&example("redundant-undo-log"), "");
    assert_eq!(bench.info().id, "redundant-undo-log");
    assert_eq!(bench.info().severity, Severity::Performance);

    bench.event(Kind::TxBegin { id: 0, depth: 1 });
    bench.event(Kind::TxAdd(place(0x1000, 64)));
    bench.event(Kind::TxAdd(place(0x1040, 64)));
    assert_eq!(bench.findings(), []);
    bench.event(Kind::TxAdd(place(0x1030, 0x20)));
    bench.event(Kind::TxEnd { id: 0, depth: 1 });
    bench.event(Kind::TxAdd(place(0x1000, 64)));
    bench.end();

    let [finding] = bench.findings() else {
        panic!("{:#?}", bench.findings());
    };
    let events: Vec<_> = finding
        .events
        .iter()
        .map(|event| {
            let site = event.site.expect("a site");
            (
                site.index.0,
                site.pc.0,
                site.kind.role(),
                event.text.as_str(),
            )
        })
        .collect();
    assert_eq!(
        events,
        [
            (4, 0x400004, "log", "32 of 32 bytes are logged again"),
            (2, 0x400002, "log", "16 of them were logged here before"),
            (3, 0x400003, "log", "16 of them were logged here before"),
        ]
    );
    assert_eq!(finding.events[0].place(), Some(place(0x1030, 0x20)));
    assert_eq!(finding.help.len(), 1);
}

#[test]
fn atomic_operation() {
    let library = example("atomic-operation");
    let refused = load_error(&library, "");
    assert!(
        refused.contains("does not start: it needs to know what to guard"),
        "{refused}"
    );

    // Two instances of one library, with options of their own.
    let mut by_name = bench(&library, "variable=root");
    let mut by_offset = bench(&library, "offset=0x40+8");
    for bench in [&mut by_name, &mut by_offset] {
        bench.event(Kind::Variable {
            name: b"root",
            place: place(0x1000, 16),
        });
        bench.event(Kind::store(0x1000, 8));
        bench.answers().in_transaction.push(ThreadId(1));
        bench.answers().logged.push((ThreadId(1), place(0x1000, 8)));
        bench.event(Kind::store(0x1000, 8));
        bench.event(Kind::NtStore(Access {
            place: place(0x1000, 16),
            bytes: &[],
        }));
    }
    let messages: Vec<_> = by_name
        .findings()
        .iter()
        .map(|finding| finding.message.as_str())
        .collect();
    assert_eq!(
        messages,
        [
            "a structure is changed outside a transaction",
            "a structure is changed by a transaction that has not logged it"
        ]
    );
    assert_eq!(by_offset.findings(), [], "those stores lie elsewhere");
}

#[test]
fn panics_disable_the_rule() {
    let library = build("tests/plugins/panicking", "panicking");
    for place in ["new", "info"] {
        let error = load_error(&library, place);
        assert!(
            error.contains(&format!(
                "the rule panicked: told to, in {place} (src/lib.rs:"
            )),
            "{error}"
        );
    }

    let mut rule = bench(&library, "event");
    let failed = rule
        .try_event_of(ThreadId(1), Kind::End)
        .expect_err("must panic");
    assert!(
        failed.to_string().starts_with(
            "the rule panicking failed and is off for the rest of the run: the rule panicked: told to, in event"
        ),
        "{failed}"
    );
    assert_eq!(rule.findings().len(), 1, "what it found before stands");
    assert_eq!(rule.try_event_of(ThreadId(1), Kind::End), Ok(()));
    rule.end();
    assert_eq!(rule.findings().len(), 1, "it is off");

    let failed = bench(&library, "payload")
        .try_event_of(ThreadId(1), Kind::End)
        .expect_err("must panic");
    let expected = "the rule panicked: of unknown cause (src/lib.rs:";
    assert!(failed.reason.starts_with(expected), "{failed}");

    drop(bench(&library, "drop"));
}

#[test]
fn rule_in_c() {
    let (_folder, library) = compile(&["NEEDS=3"]);
    let mut bench = bench(&library, "");
    let info = Info {
        id: "c-rule".into(),
        severity: Severity::Performance,
        summary: "reports every marker".into(),
        needs_values: true,
        needs_loads: true,
        kinds: u64::MAX,
    };
    assert_eq!(bench.info(), &info);

    *bench.answers() = brownout_rule::testing::Answers {
        stores: vec![
            Status {
                place: bytes(0xff8, 16),
                state: State::Flushing,
                store: store_site(5),
            },
            Status {
                place: bytes(0x1010, 8),
                state: State::Persisted,
                store: store_site(6),
            },
        ],
        ordered: vec![(bytes(0x1000, 64), bytes(0x2000, 8))],
        in_transaction: vec![ThreadId(2)],
        logged: vec![(ThreadId(1), bytes(0x800, 0x1000))],
    };
    bench.event(Kind::store(0x1000, 8));
    bench.event(Kind::Marker { text: b"look" });
    bench.end();

    let [look, over] = bench.findings() else {
        panic!("{:#?}", bench.findings());
    };
    assert_eq!(look.message, "look");
    let site = look.events[0].site.expect("a site");
    assert_eq!((site.index.0, site.thread.0, site.pc.0), (2, 1, 0x400002));
    assert_eq!(look.events[1].site, None, "all 0 is no place");
    assert_eq!(look.help, ["one", "\u{fffd}!"]);
    assert_eq!(
        look.notes,
        ["ordered 10, in transaction 01, logged 10: \
             0x1000+8 state 2 by thread 2 at 5 persisted 0; \
             0x1010+8 state 4 by thread 2 at 6 persisted 1;"]
    );
    assert_eq!((over.message.as_str(), over.events.len()), ("over", 1));

    let failed = bench
        .try_event_of(ThreadId(1), Kind::Marker { text: b"fail" })
        .expect_err("must fail");
    assert_eq!(failed.reason, "it gives no reason");
}

#[test]
fn longer_table_of_a_newer_rule_is_fine() {
    let (_folder, library) = compile(&["NEWER"]);
    assert_eq!(bench(&library, "").info().id, "c-rule");
}

#[test]
fn wrong_tables_are_named() {
    for (macros, expected) in [
        (
            "VERSION=2",
            "was built for version 2 of the rule interface, and this brownout has version 1",
        ),
        ("VERSION=0", "was built for version 0 of the rule interface"),
        (
            "SIZE=40",
            "its table has 40 bytes, and version 1 of the interface has 48",
        ),
        ("SIZE=0", "its table has 0 bytes"),
        ("HEAD_ONLY", "its table has 16 bytes, and version 1"),
        ("TINY", "its table has 8 bytes"),
        ("EVENT=NULL", "its table has no entry `event`"),
        ("MAGIC=1", "is a shared library but not a rule"),
        ("NAME=something_else", "is a shared library but not a rule"),
        (
            "ID=\"Two words\"",
            "its id \"Two words\" is not made of small letters",
        ),
        ("ID=\"\"", "its id \"\" is not made of small letters"),
        ("SEVERITY=9", "there is no severity 9"),
    ] {
        let (_folder, library) = compile(&[macros]);
        let error = load_error(&library, "");
        assert!(error.contains(expected), "{macros}: {error}");
        assert!(
            error.contains(&library.display().to_string()),
            "{macros} names the file: {error}"
        );
    }
    let (_folder, library) = compile(&[]);
    assert!(load_error(&library, "x").ends_with("does not start: it takes no options"));
    assert!(load_error(&library, "silent").ends_with("does not start: it gives no reason"));
}

#[test]
fn files_that_are_no_libraries_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let missing = load_error(&at("missing.so"), "");
    assert!(missing.starts_with("cannot read the rule"), "{missing}");
    assert!(missing.contains("missing.so: No such file"), "{missing}");

    std::fs::write(at("text.so"), "not a library").expect("written");
    std::fs::write(at("empty.so"), "").expect("written");
    let (_library_folder, library) = compile(&[]);
    let whole = std::fs::read(library).expect("read");
    let half = &whole[..whole.len() / 8];
    std::fs::write(at("half.so"), half).expect("written");
    // Fields of the ELF header: type, machine, place of the section headers, their number and
    // names.
    let changed = |name: &str, image: &[u8], changes: &[(usize, u8)]| {
        let mut image = image.to_vec();
        for (offset, value) in changes {
            image[*offset] = *value;
        }
        std::fs::write(at(name), image).expect("written");
    };
    changed("object.so", &whole, &[(16, 1)]);
    changed("arm.so", &whole, &[(18, 183)]);
    let no_sections: Vec<(usize, u8)> = (40..48).chain(60..64).map(|at| (at, 0)).collect();
    changed("no-sections.so", half, &no_sections);
    for (name, expected) in [
        ("text.so", "it is not a complete 64-bit ELF file"),
        ("empty.so", "it is not a complete 64-bit ELF file"),
        ("half.so", "it is not a complete 64-bit ELF file"),
        ("no-sections.so", "it is truncated"),
        (".", "Is a directory"),
        ("object.so", "it is a program or an object file"),
        ("arm.so", "it is for another processor"),
    ] {
        let error = load_error(&at(name), "");
        assert!(error.contains(expected), "{name}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// Asks about everything, at every event.
struct Curious;

impl Rule for Curious {
    fn new(_options: &str) -> Result<Self, String> {
        Ok(Curious)
    }
    fn info(&self) -> Info {
        Info::correctness("curious", "asks")
    }
    fn event(&mut self, event: &Event<'_>, pm: &Pm<'_>, report: &mut Reporter<'_>) {
        let range = ByteRange::new(Address(0x1000), 8);
        let persisted = pm.is_persisted(range);
        let parts = pm.status(range).len();
        let thread = event.thread;
        report
            .finding(format!(
                "{persisted} {parts} {} {} {}",
                pm.is_ordered_before(range, range),
                pm.in_transaction(thread),
                pm.is_logged(thread, range)
            ))
            .submit();
    }
}

/// Reports what it gets, and wants less than everything.
struct Choosy;

impl Rule for Choosy {
    fn new(_options: &str) -> Result<Self, String> {
        Ok(Choosy)
    }
    fn info(&self) -> Info {
        Info::correctness("choosy", "chooses").only(&[KindCode::FENCE, KindCode::END])
    }
    fn event(&mut self, event: &Event<'_>, _pm: &Pm<'_>, report: &mut Reporter<'_>) {
        report.finding(event.kind.code().role()).submit();
    }
    fn end(&mut self, _pm: &Pm<'_>, report: &mut Reporter<'_>) {
        report.finding("over").submit();
    }
}

#[test]
fn rule_gets_only_what_it_wants() {
    let mut bench = Bench::new::<Choosy>("").expect("starts");
    bench.event(Kind::store(0x1000, 8));
    bench.event(Kind::Fence(FenceKind::Sfence));
    bench.event(Kind::Other);
    bench.event(Kind::End);
    bench.end();
    let seen: Vec<_> = bench
        .findings()
        .iter()
        .map(|f| f.message.as_str())
        .collect();
    assert_eq!(seen, ["fence", "exit", "over"]);
}

#[test]
fn panic_of_the_services_passes_through_the_rule() {
    struct Broken {
        reported: u32,
    }
    impl HostServices for Broken {
        fn is_persisted(&self, _: Place) -> bool {
            panic!("our own bug")
        }
        fn is_ordered_before(&self, _: Place, _: Place) -> bool {
            unreachable!("asked after a panic")
        }
        fn status(&self, _: Place, _: &mut dyn FnMut(Status)) {
            unreachable!("asked after a panic")
        }
        fn in_transaction(&self, _: ThreadId) -> bool {
            unreachable!("asked after a panic")
        }
        fn is_logged(&self, _: ThreadId, _: Place) -> bool {
            unreachable!("asked after a panic")
        }
        fn report(&mut self, _: &Info, _: Finding) {
            self.reported += 1;
        }
    }
    let mut plugin = Plugin::in_process::<Curious>("").expect("starts");
    let mut services = Broken { reported: 0 };
    let event = Event {
        index: EventIndex(1),
        thread: ThreadId(1),
        process: brownout_rule::ProcessId(1),
        pc: Address(0),
        context: brownout_rule::ContextId(0),
        kind: Kind::End,
    };
    let call = std::panic::AssertUnwindSafe(|| plugin.event(&event, &mut services));
    let payload = std::panic::catch_unwind(call).expect_err("must panic");
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"our own bug"));
    assert_eq!(services.reported, 0);
}

/// The tool of the past: an older table than the rule was built with.
#[test]
fn rule_refuses_an_older_tool() {
    static SAID: Mutex<String> = Mutex::new(String::new());
    unsafe extern "C" fn fail(_: *mut c_void, message: RawBytes) {
        // SAFETY: the rule passes a valid message.
        *SAID.lock().expect("lock") = unsafe { message.to_text() };
    }
    unsafe extern "C" fn range(_: *mut c_void, _: Place) -> u32 {
        unreachable!()
    }
    unsafe extern "C" fn ranges(_: *mut c_void, _: Place, _: Place) -> u32 {
        unreachable!()
    }
    unsafe extern "C" fn status(
        _: *mut c_void,
        _: Place,
        _: unsafe extern "C" fn(*mut c_void, *const RawStatus),
        _: *mut c_void,
    ) {
        unreachable!()
    }
    unsafe extern "C" fn thread(_: *mut c_void, _: ThreadId) -> u32 {
        unreachable!()
    }
    unsafe extern "C" fn thread_range(_: *mut c_void, _: ThreadId, _: Place) -> u32 {
        unreachable!()
    }
    unsafe extern "C" fn report(_: *mut c_void, _: *const RawFinding) {
        unreachable!()
    }

    let create = brownout_rule::export::table::<Curious>()
        .create
        .expect("an entry");
    let sizes = [
        size_of::<HostTable>(),
        size_of::<RawEvent>(),
        size_of::<RawStatus>(),
        size_of::<RawInfo>(),
    ];
    // One of the four is too short; last, the version differs.
    for wrong in 0..5 {
        let size = |at: usize| (sizes[at] - usize::from(wrong == at)) as u32;
        let host = HostTable {
            version: if wrong == 4 { 2 } else { 1 },
            size: size(0),
            event_size: size(1),
            status_size: size(2),
            fail,
            is_persisted: range,
            is_ordered_before: ranges,
            status,
            in_transaction: thread,
            is_logged: thread_range,
            report,
        };
        let mut info = RawInfo {
            size: size(3),
            severity: 0,
            needs: 0,
            reserved: 0,
            kinds: 0,
            id: RawBytes::EMPTY,
            summary: RawBytes::EMPTY,
        };
        SAID.lock().expect("lock").clear();
        // SAFETY: the arguments live through the call.
        let instance = unsafe { create(&host, null_mut(), RawBytes::EMPTY, &mut info) };
        assert!(instance.is_null(), "{wrong}");
        let said = SAID.lock().expect("lock").clone();
        if wrong == 4 {
            assert_eq!(said, "", "the place of `fail` is not known");
        } else {
            assert!(said.contains("was built for a newer brownout"), "{said}");
        }
    }
}

#[test]
fn errors_can_be_told_apart() {
    assert!(matches!(
        Plugin::load(Path::new("/nonexistent"), ""),
        Err(LoadError::Unreadable { .. })
    ));
    let (_folder, library) = compile(&["VERSION=7"]);
    assert!(matches!(
        Plugin::load(&library, ""),
        Err(LoadError::WrongVersion { theirs: 7, .. })
    ));
}
