//! What tables hold, as functions of one byte of the input.
//!
//! Parsers look up a table for every character, and nearly always the same few: character classes,
//! digits, `switch`. To say what a table holds takes 256 addresses and a chain of as many choices;
//! so both are kept for as long as the expressions are.

use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use brownout_solve::{Expr, KnownSets, Pool};
use rustc_hash::{FxHashMap, FxHasher};

/// What an address leads to for each value of the byte that it depends on; None where that is not
/// known.
pub type Entries = Vec<Option<u128>>;

/// What was looked up: the content, and which values of the byte lead to a known entry (None: all).
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    /// The content.
    pub content: Expr,
    /// One bit.
    pub allowed: Option<Expr>,
}

/// See the module's header.
#[derive(Default)]
pub struct Tables {
    addresses: FxHashMap<Expr, Arc<[u64]>>,
    looked: FxHashMap<(Expr, u32, u64), (Entries, Looked)>,
    /// What is known of conditions about one byte.
    pub known: KnownSets,
    /// By instruction: the persistent memory in which it was seen to access what the input says.
    /// Where another input leads it elsewhere, that is what it has left.
    pub within: FxHashMap<u64, Range<u64>>,
}

impl Tables {
    /// The addresses that an expression of one byte of the input leads to.
    pub fn addresses(&mut self, pool: &Pool, address: Expr) -> Arc<[u64]> {
        let made = || {
            let values = pool.eval_byte(address);
            values.into_iter().map(|value| value as u64).collect()
        };
        self.addresses.entry(address).or_insert_with(made).clone()
    }

    /// The content at an address that depends on byte `input`, of so many bits.
    pub fn look_up(
        &mut self,
        pool: &mut Pool,
        address: Expr,
        input: u32,
        bits: u32,
        entries: Entries,
    ) -> Looked {
        let mut hasher = FxHasher::default();
        entries.hash(&mut hasher);
        let key = (address, bits, hasher.finish());
        match self.looked.get(&key) {
            Some((known, looked)) if *known == entries => return *looked,
            _ => {}
        }
        let looked = made(pool, input, bits, &entries);
        self.looked.insert(key, (entries, looked));
        looked
    }
}

fn made(pool: &mut Pool, input: u32, bits: u32, entries: &[Option<u128>]) -> Looked {
    let known = entries.iter().flatten().count();
    let mut counts: FxHashMap<u128, (u32, usize)> = FxHashMap::default();
    for (at, value) in entries.iter().enumerate() {
        if let Some(value) = value {
            counts.entry(*value).or_insert((0, usize::MAX - at)).0 += 1;
        }
    }
    // What is there most often, and of these the first, needs no choice.
    let most = counts.iter().max_by_key(|(_, count)| **count);
    let most = most.map_or(0, |(value, _)| *value);
    let byte = pool.input(input);
    let mut content = pool.constant(bits, most);
    let mut allowed = pool.constant(1, 0);
    for (number, entry) in entries.iter().enumerate() {
        let Some(value) = entry else {
            continue;
        };
        if known == entries.len() && *value == most {
            continue;
        }
        let number = pool.constant(8, number as u128);
        let is_it = pool.eq(byte, number);
        if known < entries.len() {
            allowed = pool.or(allowed, is_it);
        }
        if *value != most {
            let value = pool.constant(bits, *value);
            content = pool.ite(is_it, value, content);
        }
    }
    Looked {
        content,
        allowed: (known < entries.len()).then_some(allowed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(pool: &Pool, expr: Expr, byte: u8) -> u128 {
        pool.eval(expr, &|_| byte)
    }

    #[test]
    fn a_table_is_what_it_holds() {
        let mut pool = Pool::new();
        let mut tables = Tables::default();
        let byte = pool.input(3);
        let wide = pool.zext(byte, 64);
        let base = pool.constant(64, 0x1000);
        let address = pool.add(base, wide);
        let addresses = tables.addresses(&pool, address);
        assert_eq!(addresses.len(), 256);
        assert_eq!((addresses[0], addresses[255]), (0x1000, 0x10ff));
        let entries: Entries = (0..256u128).map(|n| Some(n / 100)).collect();
        let looked = tables.look_up(&mut pool, address, 3, 16, entries.clone());
        assert!(looked.allowed.is_none());
        for byte in 0..=255 {
            assert_eq!(
                value(&pool, looked.content, byte),
                u128::from(byte) / 100,
                "{byte}"
            );
        }
        let again = tables.look_up(&mut pool, address, 3, 16, entries.clone());
        assert_eq!(again.content, looked.content);
        // Another content, at the same address.
        let mut other = entries;
        other[7] = Some(9);
        other[8] = None;
        let looked = tables.look_up(&mut pool, address, 3, 16, other);
        assert_eq!(value(&pool, looked.content, 7), 9);
        let allowed = looked.allowed.expect("an entry is not known");
        for byte in 0..=255 {
            assert_eq!(value(&pool, allowed, byte) == 1, byte != 8, "{byte}");
        }
    }
}
