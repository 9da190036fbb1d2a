//! Random trees of files against plain maps in memory: whatever is added is found again, also after
//! a reopen, and whatever image lies in a folder can be turned into any other one, byte for byte.

mod support;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use brownout_images::{Contents, ImageId, Origin, Store, View, capture, lay};
use brownout_random::Random;
use proptest::prelude::*;
use support::{Tree, Workspace};

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn images_are_what_was_added(seed: u64) {
        images(seed);
    }
}

/// Nobody's permissions are in the way of their owner, also where the owner is not root.
#[test]
fn permissions_do_not_hinder() {
    // The file system sees this thread as an ordinary user from now on; if it is one already, the
    // call has no effect.
    let ordinary = std::thread::spawn(|| {
        // SAFETY: changes nothing but what this thread may do with files.
        unsafe { libc::setfsuid(65534) };
        (0..20).for_each(images);
        // Or this has shown nothing.
        let folder = tempfile::tempdir().unwrap();
        let closed = folder.path().join("closed");
        std::fs::write(&closed, "x").unwrap();
        std::fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
        let refused = std::fs::read(&closed).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
    });
    ordinary.join().unwrap();
}

fn images(seed: u64) {
    let mut random = Random::new(seed);
    let space = Workspace::new();
    let (at, machine_at) = space.paths();
    let view = View {
        at: &at,
        machine: &machine_at,
    };
    // What the user's machine has, and at first the view. The tool never changes it, so what cannot
    // be read there cannot be copied from there.
    let machine = Tree::random(&mut random, 8).readable();
    machine.write(&space.machine);
    machine.write(&space.view);
    let mut laid = None;

    let mut store = Store::create(&space.store).unwrap();
    let nothing = Contents::whole([]);
    let root = store.add(None, Origin::Root("nothing".into()), &nothing);
    let mut known: Vec<(ImageId, Tree)> = vec![(root.unwrap().id, machine.clone())];
    for step in 0..30 {
        let (parent, before) = known[random.index(known.len())].clone();
        let mut tree = before.clone();
        for _ in 0..=random.below(4) {
            tree.change(&mut random);
        }
        let contents = if random.percent(70) {
            tree.changes_since(&before, &machine, &mut random)
        } else {
            tree.contents(&machine)
        };
        let input = store.input(format!("step {step}").as_bytes()).unwrap();
        let origin = Origin::Run { input };
        let added = store.add(Some(parent), origin, &contents).unwrap();
        let same = known.iter().find(|(_, other)| *other == tree);
        assert_eq!(added.is_new, same.is_none());
        match same {
            Some((id, _)) => assert_eq!(added.id, *id, "one content has two names"),
            None => known.push((added.id, tree)),
        }
        if random.percent(20) {
            drop(store);
            store = Store::open(&space.store).unwrap();
        }
        if random.percent(70) {
            let (to, tree) = &known[random.index(known.len())];
            let changes = store.difference(laid, *to).unwrap();
            lay(&changes, &view).unwrap_or_else(|error| panic!("{error} of {changes:?}"));
            Tree::read(&space.view).compare(tree);
            laid = Some(*to);
            assert!(store.unlike(*to, &view).unwrap().is_empty());
            for (other, shown) in &known {
                // Another image is unlike it somewhere, unless it differs only in what it does not
                // name.
                let differs = !store.difference(Some(*other), *to).unwrap().is_empty();
                assert_eq!(differs, shown != tree);
                if !differs {
                    assert!(store.unlike(*other, &view).unwrap().is_empty());
                }
            }
            // What is seen there is that image.
            let captured = capture(tree.changed_paths(&machine), &view).unwrap();
            assert_eq!(captured.left_out, []);
            let origin = Origin::Flipped { seed: 0 };
            let again = store.add(Some(known[0].0), origin, &captured.contents);
            assert_eq!(again.unwrap().id, *to);
        }
    }
    let ids: Vec<ImageId> = store.iter().map(|node| node.id).collect();
    let expected: Vec<ImageId> = known.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, expected);
    let wrong = store.check();
    assert!(wrong.is_empty(), "{wrong:?}");
}
