//! What kills, full disks and damage do to a store: nothing that was kept is lost without a word,
//! and nothing wrong is ever given.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use brownout_images::{
    Content, Contents, Error, FailureLocation, ImageId, InputId, Kept, Moment, Origin, PAGE_LEN,
    Special, Store,
};
use brownout_random::Random;
use support::Workspace;

/// What is before the first record.
const START_LEN: usize = 16;

fn pack(store: &Path) -> PathBuf {
    store.join("images.pack")
}

/// One step of making a store.
type Make = fn(&Store) -> Result<ImageId, Error>;

/// A small store with everything that there can be in one: as steps that can be repeated, each
/// of which makes an image.
fn steps() -> Vec<Make> {
    fn page(bytes: &[u8]) -> Box<[u8; PAGE_LEN]> {
        let mut page = Box::new([0; PAGE_LEN]);
        page[50..50 + bytes.len()].copy_from_slice(bytes);
        page
    }
    fn pool(pages: Vec<(u64, Box<[u8; PAGE_LEN]>)>) -> (PathBuf, Content) {
        let (mode, len) = (0o644, 1 << 16);
        ("/pm/pool".into(), Content::Pages { mode, len, pages })
    }
    fn root(store: &Store) -> Result<ImageId, Error> {
        let (mode, len) = (0o644, 1 << 16);
        let pages = vec![(0, page(b"head")), (3, page(b"data"))];
        let contents = Contents::whole([
            ("/pm".into(), Content::Folder { mode: 0o755 }),
            ("/pm/pool".into(), Content::File { mode, len, pages }),
            ("/pm/link".into(), Content::Link("pool".into())),
            ("/etc/gone".into(), Content::Removed),
        ]);
        let added = store.add(None, Origin::Root("mkpool".into()), &contents)?;
        Ok(added.id)
    }
    fn run(store: &Store) -> Result<ImageId, Error> {
        let input = store.input(b"i 5\n")?;
        let contents = Contents::changes([pool(vec![(3, page(b"DATA")), (9, page(b"more"))])]);
        let added = store.add(store.root(), Origin::Run { input }, &contents)?;
        Ok(added.id)
    }
    fn crash(store: &Store) -> Result<ImageId, Error> {
        let input = store.input(b"i 5\n")?;
        let at = FailureLocation {
            moment: Moment::OrderingPoint(7),
            kept: Kept::Chosen(vec![1, 2, 3]),
        };
        let contents = Contents::changes([
            pool(vec![(3, page(b"DATa"))]),
            (
                "/pm/socket".into(),
                Content::Special {
                    kind: Special::Socket,
                    mode: 0o700,
                },
            ),
        ]);
        let added = store.add(store.root(), Origin::Crash { input, at }, &contents)?;
        Ok(added.id)
    }
    fn again(store: &Store) -> Result<ImageId, Error> {
        // The way back to the root, and another one.
        let input = store.input(b"r 5\n")?;
        let contents = Contents::changes([pool(vec![(3, page(b"data")), (9, page(b""))])]);
        let added = store.add(store.nth(1), Origin::Run { input }, &contents)?;
        Ok(added.id)
    }
    fn deeper(store: &Store) -> Result<ImageId, Error> {
        let input = store.input(b"r 5\ni 7\n")?;
        // Something worth being compressed.
        let pages = vec![(3, page(b"dAtA")), (5, page(&b"pattern ".repeat(300)))];
        let contents = Contents::changes([pool(pages)]);
        let added = store.add(store.nth(2), Origin::Run { input }, &contents)?;
        Ok(added.id)
    }
    vec![root, run, crash, again, deeper]
}

fn make_all(store: &Store) -> Vec<ImageId> {
    steps().iter().map(|step| step(store).unwrap()).collect()
}

/// All that a store tells, to be compared.
fn all(store: &Store) -> Vec<String> {
    let wrong = store.check();
    assert!(wrong.is_empty(), "{wrong:?}");
    let images = store.iter().map(|node| {
        let manifest = store.manifest(node.id).unwrap();
        let export = store.export(node.id).unwrap();
        let ways = store.ways(node.id).unwrap();
        format!("{node:?} {manifest:?} {export:?} {ways:?}")
    });
    images.collect()
}

#[test]
fn cut_anywhere_it_goes_on() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    // How long the file is when an image is there.
    let mut ends = Vec::new();
    for step in steps() {
        let before = store.len();
        step(&store).unwrap();
        let len = fs::metadata(pack(&space.store)).unwrap().len() as usize;
        ends.extend((store.len() > before).then_some(len));
    }
    let expected = all(&store);
    drop(store);
    let whole = fs::read(pack(&space.store)).unwrap();
    for len in 0..whole.len() {
        // Also zeros may follow that were never written.
        for zeros in [0, 1, 100, 5000] {
            let mut cut = whole[..len].to_vec();
            cut.resize(len + zeros, 0);
            fs::write(pack(&space.store), &cut).unwrap();
            let opened = Store::open(&space.store);
            if !cut.starts_with(&whole[..START_LEN]) {
                assert!(opened.is_err(), "{len}");
                continue;
            }
            if zeros > 0 && len >= START_LEN && !is_end(&whole, len) {
                // A part of a record, and then zeros: that is damage, or the part is all there is.
                match opened {
                    Err(Error::Damaged { .. }) => {}
                    Err(error) => panic!("{error}"),
                    Ok(store) => drop(all(&store)),
                }
                continue;
            }
            let store = opened.unwrap();
            let images = ends.iter().filter(|end| **end <= len).count();
            assert_eq!(store.len(), images, "cut to {len}");
            if zeros == 0 {
                all(&store);
                make_all(&store);
                assert_eq!(all(&store), expected, "cut to {len}");
                drop(store);
                assert_eq!(all(&Store::open(&space.store).unwrap()), expected);
            }
        }
    }
}

/// Whether a record ends there.
fn is_end(pack: &[u8], len: usize) -> bool {
    let mut at = START_LEN;
    while at < len {
        let bytes = pack[at..at + 4].try_into().unwrap();
        at += START_LEN + u32::from_le_bytes(bytes) as usize;
    }
    at == len
}

/// Stores outlive the tool that has written them. If this fails, either ids or the format have
/// changed: old campaigns are lost, unless the version in `record.rs` says so and somebody reads
/// the old one. `BLESS=1` writes a new file.
#[test]
fn a_store_of_version_1_can_be_read() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/version-1.pack");
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    make_all(&store);
    if std::env::var_os("BLESS").is_some() {
        fs::copy(pack(&space.store), &golden).unwrap();
    }
    let old = space.store.join("old");
    fs::create_dir(&old).unwrap();
    fs::copy(golden, pack(&old)).unwrap();
    assert_eq!(all(&Store::open(&old).unwrap()), all(&store));
}

#[test]
fn every_byte_that_was_flipped_is_noticed() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    make_all(&store);
    drop(store);
    let whole = fs::read(pack(&space.store)).unwrap();
    for at in 0..whole.len() {
        for flip in [0x01, 0x80] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            fs::write(pack(&space.store), &bytes).unwrap();
            for opened in [
                Store::open(&space.store),
                Store::open_for_reading(&space.store),
            ] {
                let error = opened
                    .err()
                    .unwrap_or_else(|| panic!("byte {at} does not matter"));
                match error {
                    Error::NotAStore(_) | Error::Version { .. } => assert!(at < START_LEN),
                    Error::Damaged { offset, .. } => assert!(offset as usize <= at, "{error}"),
                    other => panic!("{other}"),
                }
            }
            // Nothing was cut off because of it.
            assert_eq!(fs::read(pack(&space.store)).unwrap(), bytes);
        }
    }
}

#[test]
fn what_lies_before_damage_is_saved() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    make_all(&store);
    let expected = all(&store);
    drop(store);
    assert_eq!(Store::salvage(&space.store).unwrap(), None);
    let whole = fs::read(pack(&space.store)).unwrap();
    for (n, at) in (START_LEN..whole.len()).step_by(37).enumerate() {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        fs::write(pack(&space.store), &bytes).unwrap();
        let salvaged = Store::salvage(&space.store).unwrap().unwrap();
        let offset = salvaged.offset as usize;
        assert!(offset <= at && is_end(&whole, offset));
        assert_eq!(salvaged.lost_bytes as usize, whole.len() - offset);
        assert_eq!(fs::read(&salvaged.kept_as).unwrap(), &bytes[offset..]);
        assert!(
            salvaged
                .kept_as
                .ends_with(format!("images.pack.damaged-{}", n + 1))
        );
        let store = Store::open(&space.store).unwrap();
        all(&store);
        make_all(&store);
        assert_eq!(all(&store), expected);
    }
    fs::write(pack(&space.store), "something else").unwrap();
    assert!(matches!(
        Store::salvage(&space.store),
        Err(Error::NotAStore(_))
    ));
}

#[test]
fn damage_to_an_open_store_is_noticed() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    let ids = make_all(&store);
    let input = store.input(b"i 5\n").unwrap();
    // One that has nothing in memory yet.
    let reader = Store::open_for_reading(&space.store).unwrap();
    let whole = fs::read(pack(&space.store)).unwrap();
    let file = fs::OpenOptions::new()
        .write(true)
        .open(pack(&space.store))
        .unwrap();
    let noise: Vec<u8> = whole.iter().map(|byte| byte ^ 0x55).collect();
    file.write_all_at(&noise, 0).unwrap();
    let there = store.statistics();
    let count = there.pages + there.images + there.inputs;
    assert_eq!(reader.check().len() as u64, count, "everything is wrong");
    let error = reader.manifest(ids[1]).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert!(matches!(
        reader.input_bytes(input),
        Err(Error::Damaged { .. })
    ));
    file.set_len(20).unwrap();
    assert!(matches!(
        reader.difference(None, ids[1]),
        Err(Error::Damaged { .. })
    ));
    file.write_all_at(&whole, 0).unwrap();
    assert_eq!(all(&reader), all(&store));
    // What is in memory is no excuse.
    file.write_all_at(&noise, 0).unwrap();
    assert_eq!(reader.check().len() as u64, count);
}

#[test]
fn random_bytes_are_no_store() {
    let space = Workspace::new();
    let mut random = Random::new(11);
    fs::create_dir(&space.store).unwrap();
    for _ in 0..300 {
        let len = random.index(600);
        let mut bytes: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
        if random.percent(80) {
            bytes.splice(..0, *b"brownout-img\x01\0\0\0");
        }
        fs::write(pack(&space.store), &bytes).unwrap();
        match Store::open(&space.store) {
            Ok(store) => assert!(store.is_empty()),
            Err(Error::NotAStore(_) | Error::Damaged { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn errors_name_what_is_wrong() {
    let space = Workspace::new();
    let missing = Store::open(&space.store).err().unwrap();
    assert!(matches!(missing, Error::Missing(_)), "{missing}");
    let store = Store::create(&space.store).unwrap();
    assert!(matches!(Store::create(&space.store), Err(Error::Exists(_))));
    // Neither this process may open it again, nor another one, also after the attempt.
    assert!(matches!(Store::open(&space.store), Err(Error::InUse(_))));
    let other = part("finds_it_in_use", &space).output().unwrap();
    assert!(other.status.success(), "{other:?}");
    let root = steps()[0](&store).unwrap();
    let reader = Store::open_for_reading(&space.store).unwrap();
    assert_eq!(reader.root(), Some(root));
    assert!(matches!(reader.input(b"x"), Err(Error::ReadOnly(_))));
    drop(store);

    let store = Store::open(&space.store).unwrap();
    let other = ImageId::from_bytes([7; 16]);
    assert!(matches!(store.node(other), Err(Error::UnknownImage(id)) if id == other));
    let input = InputId::from_bytes([7; 16]);
    let run = |contents: Contents| store.add(Some(root), Origin::Flipped { seed: 1 }, &contents);
    let unknown = store.add(Some(root), Origin::Run { input }, &Contents::changes([]));
    assert!(matches!(unknown, Err(Error::UnknownInput(_))));
    let orphan = store.add(None, Origin::Flipped { seed: 1 }, &Contents::changes([]));
    assert!(matches!(orphan, Err(Error::ParentMismatch)));
    let file = |len: u64, pages: &[u64]| {
        let pages = pages
            .iter()
            .map(|n| (*n, Box::new([1; PAGE_LEN])))
            .collect();
        Content::File {
            mode: 0,
            len,
            pages,
        }
    };
    let bad = [
        ("relative", file(5, &[0])),
        ("/pm/../x", file(5, &[0])),
        ("/pm/x", file(4097, &[2])),
        ("/pm/x", file(0, &[0])),
        ("/pm/link/x", file(5, &[0])),
        ("/dev/null", Content::CopyOf("/dev/null".into())),
        (
            "/pm/new",
            Content::Pages {
                mode: 0,
                len: 5,
                pages: Vec::new(),
            },
        ),
    ];
    for (path, content) in bad {
        let error = run(Contents::changes([(path.into(), content)])).unwrap_err();
        assert!(matches!(error, Error::BadContent { .. }), "{path}: {error}");
    }
    let gone = Content::CopyOf("/nonexistent".into());
    let error = run(Contents::changes([("/x".into(), gone)])).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    // None of it left anything behind.
    assert_eq!(store.len(), 1);
    assert!(
        run(Contents::changes([("/x".into(), file(5, &[0]))]))
            .unwrap()
            .is_new
    );
    assert!(store.check().is_empty());
}

/// Runs a test of this file that is a part of another one, in a process of its own.
fn part(name: &str, space: &Workspace) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        name,
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env("IMAGES_STORE", &space.store);
    command
}

#[test]
#[ignore = "a part of errors_name_what_is_wrong"]
fn finds_it_in_use() {
    let folder = PathBuf::from(std::env::var_os("IMAGES_STORE").unwrap());
    assert!(matches!(Store::open(&folder), Err(Error::InUse(_))));
    assert!(matches!(Store::salvage(&folder), Err(Error::InUse(_))));
    Store::open_for_reading(&folder).unwrap();
}

/// A child that was forked has all that its parent had open. It must not keep a store locked,
/// neither one that was closed nor one whose writer is gone.
#[test]
fn children_do_not_keep_a_store_locked() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    // SAFETY: the child makes system calls only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: waits for the signal that ends it.
        unsafe {
            libc::pause();
            libc::_exit(0)
        }
    }
    assert!(child > 0);
    drop(store);
    let opened = Store::open(&space.store);
    // SAFETY: a child of ours, which is waited for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    opened.unwrap();
}

/// An image that is like no other.
fn unlike(store: &Store, parent: ImageId, n: u64) -> Result<ImageId, Error> {
    let mut random = Random::new(n);
    let pages = (0..1 + n % 40).map(|at| {
        let mut page = Box::new([0; PAGE_LEN]);
        let bytes = &mut page[..random.index(PAGE_LEN)];
        bytes.fill_with(|| random.bits() as u8);
        (at, page)
    });
    let (mode, len, pages) = (0o600, 1 << 20, pages.collect());
    let input = store.input(format!("{n}").as_bytes())?;
    let contents = Contents::changes([("/file".into(), Content::File { mode, len, pages })]);
    Ok(store
        .add(Some(parent), Origin::Run { input }, &contents)?
        .id)
}

#[test]
fn kills_lose_nothing() {
    let space = Workspace::new();
    let mut random = Random::new(5);
    let store = Store::create(&space.store).unwrap();
    steps()[0](&store).unwrap();
    drop(store);
    let mut kept: Vec<String> = Vec::new();
    for _ in 0..15 {
        let mut child = part("writes_until_it_is_killed", &space);
        let mut child = child
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let mut lines = lines.filter_map(|line| line.strip_prefix("kept ").map(str::to_owned));
        // At least so many images, and then at any moment.
        let some = random.index(20) + 1;
        kept.extend(lines.by_ref().take(some));
        std::thread::sleep(std::time::Duration::from_micros(random.below(3000)));
        child.kill().unwrap();
        child.wait().unwrap();
        kept.extend(lines);
        let store = Store::open(&space.store).unwrap();
        let missing = kept
            .iter()
            .filter(|id| !store.contains(id.parse().unwrap()));
        assert_eq!(missing.count(), 0);
    }
    let store = Store::open(&space.store).unwrap();
    assert!(store.check().is_empty());
    assert!(kept.len() >= 15);
}

#[test]
#[ignore = "a part of kills_lose_nothing"]
#[allow(clippy::print_stdout, reason = "the other test reads it")]
fn writes_until_it_is_killed() {
    let folder = std::env::var_os("IMAGES_STORE").unwrap();
    let store = Store::open(Path::new(&folder)).unwrap();
    let mut parent = store.root().unwrap();
    for n in store.len() as u64.. {
        parent = unlike(&store, parent, n).unwrap();
        println!("kept {parent}");
    }
}

#[test]
fn a_full_disk_costs_nothing_but_time() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    steps()[0](&store).unwrap();
    drop(store);
    let output = part("writes_to_a_full_disk", &space).output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let store = Store::open(&space.store).unwrap();
    assert_eq!(store.len(), 31);
    assert!(store.check().is_empty());
}

/// A limit for the sizes of files stands for a disk that is full: a write that goes beyond it is
/// cut short, and the next fails. It holds for the process, so this is one.
#[test]
#[ignore = "a part of a_full_disk_costs_nothing_but_time"]
fn writes_to_a_full_disk() {
    let limit = |len: u64| {
        let limit = libc::rlimit {
            rlim_cur: len,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: a structure of ours, and a signal that is ignored.
        let set = unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit)
        };
        assert_eq!(set, 0);
    };
    let folder = PathBuf::from(std::env::var_os("IMAGES_STORE").unwrap());
    let mut store = Store::open(&folder).unwrap();
    let root = store.root().unwrap();
    let mut random = Random::new(8);
    for n in 0..30 {
        let before = all(&store);
        let len = fs::metadata(pack(&folder)).unwrap().len();
        // Sometimes within the pages, sometimes within the image.
        for room in [0, 1, 20, 60, 1000, 40_000, 70_000] {
            limit(len + room);
            match unlike(&store, root, 100 + n) {
                Ok(_) => break,
                Err(Error::Io { .. }) => assert_eq!(all(&store), before),
                Err(error) => panic!("{error}"),
            }
        }
        limit(libc::RLIM_INFINITY);
        if random.percent(30) {
            drop(store);
            store = Store::open(&folder).unwrap();
        }
        unlike(&store, root, 100 + n).unwrap();
        assert_eq!(store.len(), 2 + n as usize);
    }
}
