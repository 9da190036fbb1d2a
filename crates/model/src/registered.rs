//! Names that a program has given to its bytes (`brownout_register_variable`), and for how long.

use crate::{ByteRange, Moment};

/// More names are not kept.
const NAMES_MAX: usize = 1 << 16;

#[derive(Debug)]
struct Naming {
    name: Vec<u8>,
    range: ByteRange,
    /// How far into the variable the range begins: one may lie in several mappings.
    into: u64,
    begun: Moment,
    ended: Option<Moment>,
}

/// All names of a run.
#[derive(Debug, Default)]
pub struct Registered {
    list: Vec<Naming>,
}

impl Registered {
    /// From now on these bytes are a variable, or a part of it.
    pub fn begin(&mut self, name: &[u8], range: ByteRange, into: u64, now: Moment) {
        if self.list.len() < NAMES_MAX {
            self.list.push(Naming {
                name: name.to_vec(),
                range,
                into,
                begun: now,
                ended: None,
            });
        }
    }

    /// The name means nothing any more.
    pub fn end(&mut self, name: &[u8], now: Moment) {
        let own = self.list.iter_mut().filter(|naming| naming.name == name);
        for naming in own {
            naming.ended.get_or_insert(now);
        }
    }

    /// What these bytes were called at a moment, by the smallest variable that has them all. If the
    /// moment is not known, only a name counts that was never taken back.
    pub fn name(&self, range: ByteRange, moment: Option<Moment>) -> Option<String> {
        let covers = |naming: &&Naming| {
            naming.range.start() <= range.start() && range.end() <= naming.range.end()
        };
        let holds = |naming: &&Naming| match (moment, naming.ended) {
            (Some(moment), ended) => {
                naming.begun <= moment && ended.is_none_or(|ended| moment < ended)
            }
            (None, ended) => ended.is_none(),
        };
        let all = self.list.iter().filter(covers).filter(holds);
        let naming = all.min_by_key(|naming| naming.range.len())?;
        let name = String::from_utf8_lossy(&naming.name);
        let offset = range.start().0 - naming.range.start().0 + naming.into;
        let is_whole = range == naming.range && naming.into == 0;
        Some(match is_whole {
            true => name.into_owned(),
            false => format!("{name}+{offset:#x}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Key;

    fn bytes(start: u64, len: u64) -> ByteRange {
        ByteRange::new(Key(start), len)
    }

    #[test]
    fn names_hold_while_they_are_registered() {
        let mut registered = Registered::default();
        registered.begin(b"head", bytes(64, 8), 0, Moment(3));
        registered.begin(b"pool", bytes(0, 256), 0, Moment(4));
        registered.end(b"head", Moment(9));
        let name =
            |start, len, moment: u64| registered.name(bytes(start, len), Some(Moment(moment)));
        assert_eq!(name(64, 8, 2), None);
        assert_eq!(name(64, 8, 3).as_deref(), Some("head"));
        assert_eq!(name(68, 4, 5).as_deref(), Some("head+0x4"));
        assert_eq!(name(64, 16, 5).as_deref(), Some("pool+0x40"));
        assert_eq!(name(64, 8, 9).as_deref(), Some("pool+0x40"), "taken back");
        assert_eq!(name(250, 8, 5), None, "not all of it");
        let timeless = |start| registered.name(bytes(start, 8), None);
        assert_eq!(timeless(64).as_deref(), Some("pool+0x40"));
    }
}
