//! What laying does to files beyond their content: mappings, holes, permissions, links.

mod support;

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use brownout_images::{
    Content, Contents, ImageId, LeftOut, Origin, PAGE_LEN, Store, View, WhyLeftOut, capture, lay,
};
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
    // SAFETY: a new mapping of a file that is open, of which the first page is used and then
    // removed.
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

/// A link that is in no image, but in the view, may lead anywhere.
#[test]
fn nothing_outside_of_a_view_is_written_to() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    let outside = space.machine.join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "mine").unwrap();
    std::os::unix::fs::symlink(&outside, space.view.join("link")).unwrap();
    let image = image(&store, vec![("/link/file", file(b"yours"))]);
    let (at, machine) = space.paths();
    let view = View {
        at: &at,
        machine: &machine,
    };
    let error = lay(&store.difference(None, image).unwrap(), &view).unwrap_err();
    assert!(
        error.to_string().contains("behind the link `/link`"),
        "{error}"
    );
    assert!(capture(["/link/file".into()], &view).is_err());
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"mine");
}

/// A folder that was removed and made again hides what the machine has in it, which nobody names.
/// Where other things of the machine's are to be seen, one that is missing was removed by somebody
/// else.
#[test]
fn folders_made_anew_are_captured() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    for root in [&space.machine, &space.view] {
        fs::create_dir(root.join("shared")).unwrap();
        fs::create_dir(root.join("anew")).unwrap();
        fs::write(root.join("shared/there"), "x").unwrap();
    }
    fs::write(space.machine.join("shared/fleeting"), "x").unwrap();
    fs::write(space.machine.join("anew/old"), "x").unwrap();
    fs::write(space.machine.join("anew/same"), "old").unwrap();
    fs::write(space.view.join("anew/same"), "new").unwrap();
    let (at, machine) = space.paths();
    let view = View {
        at: &at,
        machine: &machine,
    };
    let paths = ["/shared", "/anew", "/anew/same"].map(PathBuf::from);
    let captured = capture(paths, &view).unwrap();
    let names: Vec<_> = captured.contents.entries.iter().collect();
    let is_removed = |content: &Content| matches!(content, Content::Removed);
    let found: Vec<_> = names
        .iter()
        .map(|(path, c)| (path.to_str(), is_removed(c)))
        .collect();
    assert_eq!(
        found,
        [(Some("/anew/old"), true), (Some("/anew/same"), false)]
    );
    let origin = Origin::Root("x".into());
    let id = store.add(None, origin, &captured.contents).unwrap().id;
    // The same again, in a view that shows what the machine has.
    fs::remove_dir_all(space.view.join("anew")).unwrap();
    fs::create_dir(space.view.join("anew")).unwrap();
    fs::copy(space.machine.join("anew/old"), space.view.join("anew/old")).unwrap();
    lay_in(&space, &store, None, id);
    assert!(!space.view.join("anew/old").exists());
    assert_eq!(fs::read(space.view.join("anew/same")).unwrap(), b"new");
}

/// What an image cannot hold is told.
#[test]
fn what_is_left_out_is_told() {
    let space = Workspace::new();
    let (at, machine) = space.paths();
    let view = View {
        at: &at,
        machine: &machine,
    };
    fs::write(space.view.join("one"), "x").unwrap();
    fs::hard_link(space.view.join("one"), space.view.join("two")).unwrap();
    let captured = capture(["/one".into(), "/two".into(), "/gone".into()], &view).unwrap();
    let why = WhyLeftOut::OtherNames;
    let expected = ["/one", "/two"].map(|path| LeftOut {
        path: path.into(),
        why,
    });
    assert_eq!(captured.left_out, expected);
    assert_eq!(captured.contents.entries.len(), 2);
    let device = |path: &Path| Path::new("/dev").join(path.strip_prefix("/").unwrap());
    let view = View {
        at: &device,
        machine: &machine,
    };
    let captured = capture(["/null".into()], &view).unwrap();
    let (path, why) = ("/null".into(), WhyLeftOut::Device);
    assert_eq!(captured.left_out, [LeftOut { path, why }]);
    assert!(captured.contents.entries.is_empty());
}

/// Every way in which files can be unlike an image is seen.
#[test]
fn differences_from_an_image_are_seen() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    let mut data = vec![0; 3 * PAGE_LEN + 5];
    data[PAGE_LEN] = 1;
    let id = image(
        &store,
        vec![
            ("/folder", Content::Folder { mode: 0o755 }),
            ("/folder/file", file(&data)),
            ("/gone", Content::Removed),
            ("/link", Content::Link("folder".into())),
        ],
    );
    let (at, machine) = space.paths();
    let view = View {
        at: &at,
        machine: &machine,
    };
    let path = |name: &str| space.view.join(name);
    let spoil: [(&str, &dyn Fn()); 9] = [
        ("/folder/file", &|| {
            data_in(&path("folder/file"), PAGE_LEN as u64, 2)
        }),
        ("/folder/file", &|| data_in(&path("folder/file"), 3, 1)),
        ("/folder/file", &|| {
            data_in(&path("folder/file"), PAGE_LEN as u64, 0)
        }),
        ("/folder/file", &|| {
            fs::write(path("folder/file"), &data[1..]).unwrap()
        }),
        ("/folder/file", &|| mode(&path("folder/file"), 0o600)),
        ("/folder/file", &|| {
            fs::remove_file(path("folder/file")).unwrap()
        }),
        ("/folder", &|| mode(&path("folder"), 0o700)),
        ("/gone", &|| fs::write(path("gone"), "").unwrap()),
        ("/link", &|| fs::remove_file(path("link")).unwrap()),
    ];
    for (expected, act) in spoil {
        lay_in(&space, &store, None, id);
        assert!(store.unlike(id, &view).unwrap().is_empty());
        act();
        assert_eq!(store.unlike(id, &view).unwrap(), [PathBuf::from(expected)]);
    }
}

fn data_in(path: &Path, at: u64, byte: u8) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[byte], at).unwrap();
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
