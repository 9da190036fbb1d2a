//! Test cases nearer to the root of the tree: what was done since then is one input.

use brownout_images::{Origin, Store};

use crate::case::Case;
use crate::error::Error;
use crate::mutate::INPUT_MAX;

/// The same case from images nearer to the root, with all that was done since as one input: nearest
/// to the root first. Crashes cannot be left out that way. What the program does when it starts and
/// ends in between is left out, so that it need not show the same.
pub fn nearer(store: &Store, case: &Case) -> Result<Vec<Case>, Error> {
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
        if all.len() > INPUT_MAX {
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
