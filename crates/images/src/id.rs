//! Names of contents: the first half of their BLAKE3 hash.
//!
//! Sixteen bytes are enough: nobody attacks the store, and among a billion contents two have the
//! same name by chance with a probability of about one in 10²⁰.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::PAGE_LEN;

/// How many bytes of a hash are kept.
const LEN: usize = 16;

/// Text that is no id: it must be 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an id, which has 32 hexadecimal digits")]
pub struct BadId(String);

macro_rules! id {
    ($(#[$what:meta])* $name:ident) => {
        $(#[$what])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; LEN]);

        impl $name {
            /// From its bytes.
            pub const fn from_bytes(bytes: [u8; LEN]) -> $name {
                $name(bytes)
            }

            /// Its bytes.
            pub const fn as_bytes(&self) -> &[u8; LEN] {
                &self.0
            }

            // Not every kind of id is the hash of plain bytes.
            #[allow(dead_code)]
            pub(crate) fn of(content: &[u8]) -> $name {
                $name(half(blake3::hash(content)))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<$name, BadId> {
                parse(text).map($name)
            }
        }

        /// As text where people read it, else as bytes.
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                if to.is_human_readable() {
                    to.collect_str(self)
                } else {
                    self.0.serialize(to)
                }
            }
        }

        impl<'a> Deserialize<'a> for $name {
            fn deserialize<D: Deserializer<'a>>(from: D) -> Result<$name, D::Error> {
                if from.is_human_readable() {
                    let text = std::borrow::Cow::<str>::deserialize(from)?;
                    text.parse().map_err(D::Error::custom)
                } else {
                    <[u8; LEN]>::deserialize(from).map($name)
                }
            }
        }
    };
}

id! {
    /// Names an image: the hash of its manifest, so that the same files have the same id wherever
    /// and however they came about.
    ImageId
}
id! {
    /// Names a page of 4 KiB by its content.
    PageId
}
id! {
    /// Names an input by its content.
    InputId
}

/// What a page holds.
pub type Page = [u8; PAGE_LEN];

/// The half of a hash that is kept.
pub(crate) fn half(hash: blake3::Hash) -> [u8; LEN] {
    let mut half = [0; LEN];
    half.copy_from_slice(&hash.as_bytes()[..LEN]);
    half
}

fn parse(text: &str) -> Result<[u8; LEN], BadId> {
    let bad = || BadId(text.to_owned());
    let digits = text.as_bytes();
    if digits.len() != 2 * LEN {
        return Err(bad());
    }
    let mut bytes = [0; LEN];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let digit = |digit: u8| (digit as char).to_digit(16).ok_or_else(bad);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let id = ImageId::of(b"something");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().len(), 32);
        for wrong in [
            "",
            "12",
            "zz345678901234567890123456789012",
            "ä5678901234567890123456789012345",
        ] {
            assert!(wrong.parse::<ImageId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn serde_in_both_forms() {
        let id = InputId::of(b"i 5\n");
        let text = serde_json::to_string(&id).unwrap();
        assert_eq!(text, format!("\"{id}\""));
        assert_eq!(serde_json::from_str::<InputId>(&text).unwrap(), id);
        let bytes = postcard::to_allocvec(&id).unwrap();
        assert_eq!(bytes, id.as_bytes());
        assert_eq!(postcard::from_bytes::<InputId>(&bytes).unwrap(), id);
    }
}
