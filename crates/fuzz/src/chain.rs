//! Test cases nearer to the root of the tree: what was done since then is one input.

use brownout_images::{Origin, Store};

use crate::case::Case;
use crate::error::Error;

/// The same case from images nearer to the root, with all that was done since as one input: nearest
/// to the root first. Crashes cannot be left out that way. What the program does when it starts and
/// ends in between is left out, so that it need not show the same. No input is longer than this.
pub fn nearer(store: &Store, case: &Case, input_max: usize) -> Result<Vec<Case>, Error> {
    let mut found = Vec::new();
    let mut input = case.input.clone();
    let mut image = case.image;
    loop {
        let node = store.node(image)?;
        let (Some(parent), Origin::Run { input: before }) = (node.parent, node.origin) else {
            break;
        };
        let mut all = store.input_bytes(before)?;
        if all.last().is_some_and(|byte| *byte != b'\n') {
            all.push(b'\n');
        }
        all.extend(&input);
        if all.len() > input_max {
            break;
        }
        (image, input) = (parent, all);
        found.push(Case {
            image,
            input: input.clone(),
        });
    }
    found.reverse();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutate::{INPUT_MAX, chain_max};
    use brownout_images::{Content, Contents};
    use std::path::PathBuf;

    /// The store, its root, and what runs with inputs of these lengths leave one after the other.
    fn chain(lengths: &[usize]) -> (tempfile::TempDir, Store, Case) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::create(&folder.path().join("images")).expect("a store");
        let entry = |n: usize| {
            (
                PathBuf::from(format!("/{n}")),
                Content::Folder { mode: 0o755 },
            )
        };
        let origin = Origin::Root("nothing".into());
        let root = store.add(None, origin, &Contents::whole([]));
        let mut image = root.expect("a root").id;
        let (last, before) = lengths.split_last().expect("a run");
        for (number, len) in before.iter().enumerate() {
            let input = store.input(&vec![b'x'; *len]).expect("an input");
            let contents = Contents::whole((0..=number).map(entry));
            let added = store.add(Some(image), Origin::Run { input }, &contents);
            image = added.expect("an image").id;
        }
        let input = vec![b'y'; *last];
        (folder, store, Case { image, input })
    }

    #[test]
    fn chains_of_long_seeds_are_shortened() {
        let long = 2 * INPUT_MAX;
        let (_folder, store, case) = chain(&[long, long - 1]);
        let found = nearer(&store, &case, chain_max([long, 5])).expect("a chain");
        let lengths: Vec<usize> = found.iter().map(|case| case.input.len()).collect();
        assert_eq!(lengths, [2 * long]);
        assert_eq!(store.root(), Some(found[0].image));
        let found = nearer(&store, &case, chain_max([5])).expect("a chain");
        assert!(found.is_empty());
    }

    #[test]
    fn the_nearest_to_the_root_is_first() {
        let (_folder, store, case) = chain(&[3, 4, 5]);
        let found = nearer(&store, &case, chain_max([])).expect("a chain");
        let inputs: Vec<&[u8]> = found.iter().map(|case| &case.input[..]).collect();
        assert_eq!(inputs, [&b"xxx\nxxxx\nyyyyy"[..], b"xxxx\nyyyyy"]);
    }
}
