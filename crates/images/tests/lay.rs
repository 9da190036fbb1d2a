//! What laying does to files beyond their content: mappings, holes, permissions, links.

mod support;

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use brownout_images::{Content, Contents, ImageId, Origin, PAGE_LEN, Store, View, lay};
use support::{Workspace, pages};

fn image(store: &Store, entries: Vec<(&str, Content)>) -> ImageId {
    let entries = entries.into_iter();
    let contents = Contents::whole(entries.map(|(path, content)| (PathBuf::from(path), content)));
    store
        .add(None, Origin::Root("a test".into()), &contents)
        .unwrap()
        .id
}

fn file(data: &[u8]) -> Content {
    let pages = (0..).zip(pages(data)).collect();
    let (mode, len) = (0o644, data.len() as u64);
    Content::File { mode, len, pages }
}

fn lay_in(space: &Workspace, store: &Store, from: Option<ImageId>, to: ImageId) {
    let (at, machine) = space.paths();
    let view = View {
        at: &at,
        machine: &machine,
    };
    lay(&store.difference(from, to).unwrap(), &view).unwrap();
}

/// A program that has a file mapped sees what was laid.
#[test]
fn mappings_show_what_is_laid() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    let mut data = vec![0; 5 * PAGE_LEN];
    data[2 * PAGE_LEN + 5] = 1;
    data[4 * PAGE_LEN] = 9;
    let one = image(&store, vec![("/pool", file(&data))]);
    data[2 * PAGE_LEN + 5] = 2;
    data[4 * PAGE_LEN] = 0;
    data[0] = 7;
    let two = image(&store, vec![("/pool", file(&data))]);
    lay_in(&space, &store, None, one);
    let path = space.view.join("pool");
    let mapped = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    // SAFETY: a new mapping of a file that is open, removed below.
    let mapping = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            data.len(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            mapped.as_raw_fd(),
            0,
        )
    };
    assert_ne!(mapping, libc::MAP_FAILED);
    let look = || {
        // SAFETY: the mapping is there and as long as that; nobody writes meanwhile.
        unsafe { std::slice::from_raw_parts(mapping.cast::<u8>(), data.len()) }.to_vec()
    };
    assert_eq!(look()[2 * PAGE_LEN + 5], 1);
    let inode = fs::metadata(&path).unwrap().ino();
    lay_in(&space, &store, Some(one), two);
    assert!(look() == data);
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    // Also from nothing.
    lay_in(&space, &store, None, two);
    assert!(look() == data);
    // SAFETY: nobody uses it any more.
    unsafe { libc::munmap(mapping, data.len()) };
}

/// A mapping may write behind the end of a file, which must not show when the file grows.
#[test]
fn what_lies_behind_the_end_is_zero() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    let short = image(&store, vec![("/pool", file(&[1; 100]))]);
    let mut data = vec![0; 3 * PAGE_LEN];
    data[..100].fill(1);
    let long = image(&store, vec![("/pool", file(&data))]);
    lay_in(&space, &store, None, short);
    let path = space.view.join("pool");
    let mapped = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    // SAFETY: a new mapping of a file that is open, of which the first page is used and then removed.
    unsafe {
        let mapping = libc::mmap(
            std::ptr::null_mut(),
            PAGE_LEN,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            mapped.as_raw_fd(),
            0,
        );
        assert_ne!(mapping, libc::MAP_FAILED);
        mapping.cast::<u8>().add(500).write_volatile(5);
        lay_in(&space, &store, Some(short), long);
        libc::munmap(mapping, PAGE_LEN);
    }
    assert!(fs::read(&path).unwrap() == data);
}

/// A large file that is mostly empty takes the room of what is in it.
#[test]
fn holes_stay_holes() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    let len: u64 = 1 << 33;
    let sparse = |numbers: &[u64]| {
        let page = |n: &u64| (*n, Box::new([*n as u8 | 1; PAGE_LEN]));
        let pages = numbers.iter().map(page).collect();
        let mode = 0o600;
        Content::File { mode, len, pages }
    };
    let few = image(&store, vec![("/pool", sparse(&[0, 1 << 20]))]);
    let many: Vec<u64> = (0..500).map(|n| n * 3).chain([1 << 20]).collect();
    let many = image(&store, vec![("/pool", sparse(&many))]);
    let path = space.view.join("pool");
    let room = || fs::metadata(&path).unwrap().blocks() * 512;
    lay_in(&space, &store, None, few);
    assert_eq!(fs::metadata(&path).unwrap().len(), len);
    assert!(room() <= 64 << 10, "{}", room());
    lay_in(&space, &store, Some(few), many);
    assert!(room() >= 500 * 4096);
    lay_in(&space, &store, Some(many), few);
    assert!(room() <= 64 << 10, "{}", room());
    let mut byte = [0];
    File::open(&path)
        .unwrap()
        .read_at(&mut byte, 1 << 32)
        .unwrap();
    assert_eq!(byte, [1]);
}

/// A path never leads through a link that is about to go.
#[test]
fn links_are_not_followed() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    let folder = || Content::Folder { mode: 0o755 };
    let link = image(
        &store,
        vec![
            ("/real", folder()),
            ("/real/file", file(b"precious")),
            ("/x", Content::Link("real".into())),
        ],
    );
    let other = image(
        &store,
        vec![
            ("/real", folder()),
            ("/real/file", file(b"precious")),
            ("/x", folder()),
            ("/x/file", file(b"other")),
        ],
    );
    let read = |path: &str| fs::read(space.view.join(path)).unwrap();
    lay_in(&space, &store, None, link);
    assert_eq!(read("x/file"), b"precious");
    lay_in(&space, &store, Some(link), other);
    assert_eq!(
        (read("x/file"), read("real/file")),
        (b"other".to_vec(), b"precious".to_vec())
    );
    lay_in(&space, &store, Some(other), link);
    assert_eq!(read("real/file"), b"precious");
    // A file becomes a link: what it leads to is not written to.
    let plain = image(
        &store,
        vec![("/y", file(b"plain")), ("/z", Content::Link("y".into()))],
    );
    let swapped = image(&store, vec![("/y", file(b"PLAIN")), ("/z", file(b"z"))]);
    lay_in(&space, &store, Some(link), plain);
    lay_in(&space, &store, Some(plain), swapped);
    assert_eq!((read("y"), read("z")), (b"PLAIN".to_vec(), b"z".to_vec()));
    assert!(!Path::new(&space.view.join("x")).exists());
}
