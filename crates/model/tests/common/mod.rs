//! Reading whole outcomes out of the lazy view and the reference.

use std::collections::BTreeSet;

use brownout_model::reference::Image;
use brownout_model::{ByteRange, CrashState};

/// All that a recovery reading `ranges` in this order may see, by lazy reads. Reads are split into
/// units of at most 8 aligned bytes, as a program's would be.
pub fn lazy_outcomes(crash: &CrashState<'_>, ranges: &[ByteRange]) -> BTreeSet<Vec<Vec<u8>>> {
    let words: Vec<(usize, ByteRange)> = ranges
        .iter()
        .enumerate()
        .flat_map(|(i, range)| range.split(8).map(move |word| (i, word)))
        .collect();
    let mut outcomes = BTreeSet::new();
    descend(
        crash,
        &words,
        &mut vec![Vec::new(); ranges.len()],
        &mut outcomes,
    );
    outcomes
}

fn descend(
    crash: &CrashState<'_>,
    words: &[(usize, ByteRange)],
    seen: &mut Vec<Vec<u8>>,
    outcomes: &mut BTreeSet<Vec<Vec<u8>>>,
) {
    let Some(((owner, word), rest)) = words.split_first() else {
        outcomes.insert(seen.clone());
        return;
    };
    for option in crash.may_read(*word) {
        assert_eq!(option.range, *word, "a word lies in one unit");
        let mut narrowed = crash.clone();
        narrowed.choose(&option);
        let again = narrowed.may_read(*word);
        assert_eq!(
            again.len(),
            1,
            "a second read of the same bytes has no choice left"
        );
        assert_eq!(again[0].bytes, option.bytes);
        let len = seen[*owner].len();
        seen[*owner].extend_from_slice(&option.bytes);
        descend(&narrowed, rest, seen, outcomes);
        seen[*owner].truncate(len);
    }
}

/// The same, out of enumerated images.
pub fn image_outcomes(images: &BTreeSet<Image>, ranges: &[ByteRange]) -> BTreeSet<Vec<Vec<u8>>> {
    let read = |image: &Image, range: &ByteRange| {
        (range.start().0..range.end().0)
            .map(|a| image.get(&a).copied().unwrap_or(0))
            .collect()
    };
    images
        .iter()
        .map(|image| ranges.iter().map(|range| read(image, range)).collect())
        .collect()
}
