//! The tree of images: ways, chains, numbers, threads.

mod support;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Barrier;

use brownout_images::{
    Action, Content, Contents, Entry, FailureLocation, ImageId, Kept, Moment, Origin, PAGE_LEN,
    Store,
};
use brownout_random::Random;
use support::Workspace;

/// Contents that a number stands for: a file of some pages.
fn contents(number: u64) -> Contents {
    let mut random = Random::new(number);
    let pages = (0..1 + number % 5).map(|_| {
        let mut page = Box::new([0; PAGE_LEN]);
        page[random.index(PAGE_LEN - 8)..][..8].copy_from_slice(&number.to_le_bytes());
        (random.below(100), page)
    });
    let (mode, len) = (0o644, 100 * PAGE_LEN as u64 + number);
    let pages = pages.collect();
    let file = Content::File { mode, len, pages };
    Contents::whole([(PathBuf::from("/pool"), file)])
}

fn root(store: &Store) -> ImageId {
    let origin = Origin::Root("mkpool /pool".into());
    store.add(None, origin, &contents(0)).unwrap().id
}

fn run(store: &Store, parent: ImageId, number: u64, input: &str) -> (ImageId, bool) {
    let input = store.input(input.as_bytes()).unwrap();
    let added = store.add(Some(parent), Origin::Run { input }, &contents(number));
    let added = added.unwrap();
    (added.id, added.is_new)
}

#[test]
fn chains_are_exported() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    assert_eq!(store.root(), None);
    let root = root(&store);
    let (one, _) = run(&store, root, 1, "i 1\n");
    let input = store.input(b"i 2\n").unwrap();
    let at = FailureLocation {
        moment: Moment::Event(17),
        kept: Kept::Seed(4),
    };
    let crash = Origin::Crash {
        input,
        at: at.clone(),
    };
    let two = store.add(Some(one), crash, &contents(2)).unwrap().id;
    let (three, _) = run(&store, two, 3, "i 3\n");
    let chain = store.export(three).unwrap();
    assert_eq!((chain.setup.as_str(), chain.root), ("mkpool /pool", root));
    let run = |text: &str| Action::Run { input: text.into() };
    let crash = Action::Crash {
        input: "i 2\n".into(),
        at,
    };
    let expected = [(run("i 1\n"), one), (crash, two), (run("i 3\n"), three)];
    let steps = chain
        .steps
        .iter()
        .map(|step| (step.action.clone(), step.image));
    assert!(steps.eq(expected));
    // As data, and back.
    let text = serde_json::to_string(&chain).unwrap();
    assert_eq!(
        serde_json::from_str::<brownout_images::Chain>(&text).unwrap(),
        chain
    );

    let nodes = store.chain(three).unwrap();
    let numbers: Vec<(u32, u32)> = nodes.iter().map(|node| (node.number, node.depth)).collect();
    assert_eq!(numbers, [(0, 0), (1, 1), (2, 2), (3, 3)]);
    assert_eq!(store.children(one).unwrap(), [two]);
    assert_eq!(store.export(root).unwrap().steps, []);
}

#[test]
fn the_shortest_way_is_told() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    let root = root(&store);
    let mut last = root;
    let mut images = vec![root];
    for n in 1..10 {
        last = run(&store, last, n, &format!("i {n}")).0;
        images.push(last);
    }
    // Images that exist are not new, and their first origin stays.
    assert_eq!(run(&store, root, 5, "all at once"), (images[5], false));
    let check = |store: &Store| {
        assert_eq!(store.node(images[5]).unwrap().depth, 1);
        assert_eq!(
            store.node(last).unwrap().depth,
            5,
            "those behind it come nearer, too"
        );
        assert_eq!(store.export(last).unwrap().steps.len(), 5);
        assert_eq!(store.node(images[4]).unwrap().depth, 4);
        assert_eq!(store.children(root).unwrap(), [images[1], images[5]]);
        assert_eq!(store.children(images[4]).unwrap(), []);
        let ways = store.ways(images[5]).unwrap();
        assert_eq!(ways.len(), 2);
        assert_eq!(ways[0].0, Some(images[4]));
        assert_eq!(ways[1].0, Some(root));
    };
    check(&store);
    // A run that changes nothing, and one that leads back, are no ways worth telling.
    assert_eq!(run(&store, last, 9, "nothing"), (last, false));
    assert_eq!(store.ways(last).unwrap().len(), 1);
    assert_eq!(run(&store, last, 0, "all gone"), (root, false));
    assert_eq!(store.node(root).unwrap().depth, 0);
    check(&store);
    let disk = store.statistics().disk_bytes;
    // Ways are bounded.
    for n in 0..500 {
        run(&store, images[9], 3, &format!("way {n}"));
    }
    assert_eq!(store.ways(images[3]).unwrap().len(), 4);
    drop(store);
    let store = Store::open(&space.store).unwrap();
    check(&store);
    assert!(store.statistics().disk_bytes < disk + 100_000);
}

/// Depths against a search of breadth first, on random graphs.
#[test]
fn depths_are_those_of_a_search() {
    let space = Workspace::new();
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let folder = space.store.join(seed.to_string());
        let store = Store::create(&folder).unwrap();
        let root = root(&store);
        let mut numbers = BTreeMap::from([(root, 0)]);
        for _ in 0..120 {
            let ids: Vec<ImageId> = numbers.keys().copied().collect();
            let parent = ids[random.index(ids.len())];
            let number = random.below(60);
            let (id, is_new) = run(&store, parent, number, &format!("{}", random.below(5)));
            assert_eq!(is_new, numbers.insert(id, number).is_none());
        }
        for reopened in [false, true] {
            let other = reopened.then(|| Store::open_for_reading(&folder).unwrap());
            let store = other.as_ref().unwrap_or(&store);
            // All ways that are known, searched from the root.
            let mut depths = BTreeMap::from([(root, 0)]);
            let mut changed = true;
            while changed {
                changed = false;
                for id in numbers.keys() {
                    for (parent, _) in store.ways(*id).unwrap() {
                        let by = parent.and_then(|parent| depths.get(&parent)).map(|d| d + 1);
                        if let Some(by) = by
                            && depths.get(id).is_none_or(|depth| by < *depth)
                        {
                            depths.insert(*id, by);
                            changed = true;
                        }
                    }
                }
            }
            for node in store.iter() {
                assert_eq!(node.depth, depths[&node.id], "seed {seed}");
                let chain = store.chain(node.id).unwrap();
                assert_eq!(chain.len() as u32, node.depth + 1);
                assert_eq!(chain[0].id, root);
                if let Some(parent) = node.parent {
                    assert!(store.children(parent).unwrap().contains(&node.id));
                }
            }
        }
    }
}

/// Far down everything is still what it was, whatever it is relative to.
#[test]
fn deep_images_are_whole() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    let mut pages = BTreeMap::new();
    let mut random = Random::new(3);
    let mut parent = root(&store);
    let mut expected = Vec::new();
    let (mode, len) = (0o644, 1 << 20);
    for n in 0..150 {
        let input = store.input(format!("{n}").as_bytes()).unwrap();
        let number = random.below(40);
        let page = pages
            .entry(number)
            .or_insert_with(|| Box::new([0; PAGE_LEN]));
        page[random.index(PAGE_LEN)] = random.bits() as u8 | 1;
        let content = if n == 0 {
            let pages = vec![(number, page.clone())];
            Content::File { mode, len, pages }
        } else {
            let pages = vec![(number, page.clone())];
            Content::Pages { mode, len, pages }
        };
        let contents = Contents::changes([(PathBuf::from("/pool"), content)]);
        let added = store.add(Some(parent), Origin::Run { input }, &contents);
        parent = added.unwrap().id;
        expected.push((parent, pages.clone()));
    }
    drop(store);
    let store = Store::open(&space.store).unwrap();
    // The deepest first, so that no other helps.
    for (id, expected) in expected.iter().rev() {
        let manifest = store.manifest(*id).unwrap();
        let Some(Entry::File { pages, .. }) = manifest.entries.values().next() else {
            panic!("no file");
        };
        let found = pages
            .iter()
            .map(|(number, id)| (number, store.page(id).unwrap()));
        let expected = expected.iter().map(|(number, page)| (*number, page));
        assert!(
            found
                .map(|(n, page)| (n, *page))
                .eq(expected.map(|(n, page)| (n, **page)))
        );
    }
}

#[test]
fn the_same_additions_give_the_same_store() {
    let space = Workspace::new();
    let make = |name: &str| {
        let folder = space.store.join(name);
        let store = Store::create(&folder).unwrap();
        let mut parents = vec![root(&store)];
        for n in 1..40 {
            let parent = parents[n as usize * 7 % parents.len()];
            parents.push(run(&store, parent, n, &format!("{n}")).0);
        }
        drop(store);
        std::fs::read(folder.join("images.pack")).unwrap()
    };
    assert_eq!(make("one"), make("other"));
}

/// Many threads that bring the same and different images: each is there once.
#[test]
fn threads_share_a_store() {
    let space = Workspace::new();
    let store = Store::create(&space.store).unwrap();
    let root = root(&store);
    let start = Barrier::new(4);
    let new: u64 = std::thread::scope(|scope| {
        let threads = (0..4).map(|thread| {
            let (store, start) = (&store, &start);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                let mut parent = root;
                let mut new = 0;
                start.wait();
                for _ in 0..150 {
                    let number = random.below(100);
                    let (id, is_new) = run(store, parent, number, &format!("{number}"));
                    new += u64::from(is_new);
                    let Some(Entry::File { len, .. }) =
                        store.manifest(id).unwrap().entries.values().next().cloned()
                    else {
                        panic!("no file");
                    };
                    assert_eq!(len, 100 * PAGE_LEN as u64 + number);
                    store.difference(Some(parent), id).unwrap();
                    parent = id;
                }
                new
            })
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    let numbers: Vec<u32> = store.iter().map(|node| node.number).collect();
    assert!(numbers.iter().copied().eq(0..store.len() as u32));
    assert_eq!(store.len() as u64, new + 1);
    assert!(store.len() <= 100);
    assert!(store.check().is_empty());
    let nodes: Vec<_> = store.iter().collect();
    drop(store);
    let store = Store::open(&space.store).unwrap();
    assert!(store.iter().eq(nodes));
    assert!(store.check().is_empty());
}
