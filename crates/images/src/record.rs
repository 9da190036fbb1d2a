//! The file: what its records look like, and how they are found again.
//!
//! ```text
//!  pack     magic and version, 16 bytes; then records until its end
//!  record   u32   length of the content
//!           [8]   checksum of the content
//!           [4]   checksum of the 12 bytes before
//!           content: a Meta (postcard), then the body, which is compressed if that makes it shorter
//! ```
//!
//! Metas are read when a store is opened, bodies when somebody asks for them. The head has a
//! checksum of its own, so that a length that was damaged is not taken for a record that was cut
//! short: a file that ends within a record was cut (its writer was killed, or the disk was full),
//! and that record has never counted; anything else that is wrong is damage.

use std::cell::RefCell;
use std::fs::File;

use serde::{Deserialize, Serialize};

use crate::content::{is_zero, read_full};
use crate::error::Damage;
use crate::origin::FailureLocation;
use crate::{ImageId, InputId, PageId};

/// How a pack begins.
pub(crate) const MAGIC: &[u8; 12] = b"brownout-img";
/// The version that follows the magic.
pub(crate) const VERSION: u32 = 1;
/// How long both are.
pub(crate) const START_LEN: u64 = 16;
/// How long the head of a record is.
pub(crate) const HEAD_LEN: u64 = 16;
/// So much is read of a record at first.
const FIRST_LEN: usize = 1024;
/// No record is longer, compressed or not.
pub(crate) const RECORD_MAX: usize = 1 << 28;

/// Of what is compressed this much suffices: bodies are small, and higher levels gain little.
const LEVEL: i32 = 3;

/// What a record is about. It is read when a store is opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Meta {
    /// An input; it is the body.
    Input { id: InputId, body: Body },
    /// Pages of an image that follows; the body has them, each after its length.
    Pages { pages: Vec<NewPage>, body: Body },
    /// An image; the body has pages that are new, and then the delta.
    Image {
        id: ImageId,
        parent: Option<u32>,
        origin: StoredOrigin,
        /// The image that the delta is relative to; `None` for the user's machine.
        base: Option<u32>,
        /// Paths that were not named before.
        paths: Vec<Vec<u8>>,
        pages: Vec<NewPage>,
        body: Body,
    },
    /// Another way to an image.
    Way {
        image: u32,
        parent: Option<u32>,
        origin: StoredOrigin,
    },
}

impl Meta {
    pub fn body(&self) -> Option<&Body> {
        match self {
            Meta::Input { body, .. } | Meta::Pages { body, .. } | Meta::Image { body, .. } => {
                Some(body)
            }
            Meta::Way { .. } => None,
        }
    }
}

/// How the body is stored.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Body {
    /// As it is.
    Plain,
    /// Compressed by zstd, from so many bytes.
    Zstd(u32),
}

/// A page that a record brings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct NewPage {
    pub id: PageId,
    pub form: Form,
}

/// How a page is written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Form {
    /// All of it.
    Whole,
    /// As what differs from a page of zeros.
    Zero,
    /// As what differs from the page that is so many before it, in order of arrival.
    Patch(u32),
}

/// An [`Origin`](crate::Origin) whose input is a number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum StoredOrigin {
    Root(String),
    Run { input: u32 },
    Crash { input: u32, at: FailureLocation },
    Flipped { seed: u64 },
}

/// What an image has other than its base, by path number.
pub(crate) type Delta = Vec<(u32, DeltaEntry)>;

/// What one path has become.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum DeltaEntry {
    /// As on the user's machine.
    Machine,
    Removed,
    Folder {
        mode: u32,
    },
    Link(Vec<u8>),
    Special {
        kind: crate::Special,
        mode: u32,
    },
    /// Of which all pages are named.
    File {
        mode: u32,
        len: u64,
        pages: Vec<DeltaPage>,
    },
    /// Of which pages that are not named are as in the base.
    Pages {
        mode: u32,
        len: u64,
        pages: Vec<DeltaPage>,
    },
}

/// A page of a file: how many lie between it and the one named before it, and how many pages have
/// arrived in the store since it did, counted from 1; 0 is a page of zeros.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct DeltaPage {
    pub gap: u64,
    pub age: u32,
}

thread_local! {
    // A context costs more to make than a small body to compress.
    static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Compresses if that pays.
pub(crate) fn pack_body(plain: Vec<u8>) -> (Body, Vec<u8>) {
    let packed = COMPRESSOR.with_borrow_mut(|compressor| {
        if compressor.is_none() {
            *compressor = zstd::bulk::Compressor::new(LEVEL).ok();
        }
        compressor.as_mut()?.compress(&plain).ok()
    });
    match (packed, u32::try_from(plain.len())) {
        (Some(packed), Ok(len)) if packed.len() < plain.len() => (Body::Zstd(len), packed),
        _ => (Body::Plain, plain),
    }
}

/// The contrary.
pub(crate) fn unpack_body(body: Body, stored: &[u8]) -> Result<Vec<u8>, Damage> {
    let bad = Damage::Nonsense("its body cannot be decompressed");
    let len = match body {
        Body::Plain => return Ok(stored.to_vec()),
        Body::Zstd(len) => len as usize,
    };
    if len > RECORD_MAX {
        return Err(bad);
    }
    let plain = DECOMPRESSOR.with_borrow_mut(|decompressor| {
        if decompressor.is_none() {
            *decompressor = zstd::bulk::Decompressor::new().ok();
        }
        decompressor.as_mut()?.decompress(stored, len).ok()
    });
    plain.filter(|plain| plain.len() == len).ok_or(bad)
}

/// A record as it is written. `None`: it would be too long.
pub(crate) fn frame(meta: &Meta, body: &[u8]) -> Option<Vec<u8>> {
    let mut content = postcard::to_allocvec(meta).ok()?;
    content.extend_from_slice(body);
    let plain_len = match meta.body() {
        Some(Body::Zstd(len)) => *len as usize,
        _ => 0,
    };
    (content.len().max(plain_len) <= RECORD_MAX).then(|| seal(&content))
}

/// Puts the head before a content.
pub(crate) fn seal(content: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEAD_LEN as usize + content.len());
    record.extend_from_slice(&(content.len() as u32).to_le_bytes());
    record.extend_from_slice(&sum::<8>(content));
    let head_sum = sum_of_head(&record);
    record.extend_from_slice(&head_sum);
    record.extend_from_slice(content);
    record
}

fn sum<const LEN: usize>(bytes: &[u8]) -> [u8; LEN] {
    let mut sum = [0; LEN];
    sum.copy_from_slice(&blake3::hash(bytes).as_bytes()[..LEN]);
    sum
}

fn sum_of_head(head: &[u8]) -> [u8; 4] {
    sum(&head[..12])
}

/// What a look at some place of the file found.
pub(crate) enum Found {
    /// A record that is whole.
    Record {
        /// Its content.
        content: Vec<u8>,
        /// Where the next begins.
        next: u64,
    },
    /// The file ends here.
    End,
    /// The file ends within a record, or with zeros that were never written.
    Torn,
}

/// Looks at a record of a file that has that length.
pub(crate) fn find(file: &File, at: u64, file_len: u64) -> std::io::Result<Result<Found, Damage>> {
    // Most records are short; then this is all that must be read.
    let mut first = [0; FIRST_LEN];
    let read = read_full(file, &mut first, at)?;
    if read == 0 || at >= file_len {
        return Ok(Ok(Found::End));
    }
    let Some((head, start)) = first[..read].split_at_checked(HEAD_LEN as usize) else {
        return Ok(Ok(Found::Torn));
    };
    if sum_of_head(head) != head[12..] {
        let torn = is_zero(head) && rest_is_zero(file, at, file_len)?;
        return Ok(if torn {
            Ok(Found::Torn)
        } else {
            Err(Damage::Head)
        });
    }
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if len > RECORD_MAX {
        return Ok(Err(Damage::Nonsense("it is too long")));
    }
    let next = at + HEAD_LEN + len as u64;
    if next > file_len {
        return Ok(Ok(Found::Torn));
    }
    let mut content = start[..start.len().min(len)].to_vec();
    let read = content.len();
    if read < len {
        content.resize(len, 0);
        let rest = read_full(file, &mut content[read..], at + HEAD_LEN + read as u64)?;
        if read + rest < len {
            return Ok(Ok(Found::Torn));
        }
    }
    if sum::<8>(&content) != head[4..12] {
        return Ok(Err(Damage::Record));
    }
    Ok(Ok(Found::Record { content, next }))
}

fn rest_is_zero(file: &File, mut at: u64, file_len: u64) -> std::io::Result<bool> {
    let mut buffer = vec![0; 1 << 16];
    while at < file_len {
        let read = read_full(file, &mut buffer, at)?;
        if read == 0 {
            break;
        }
        if !is_zero(&buffer[..read]) {
            return Ok(false);
        }
        at += read as u64;
    }
    Ok(true)
}

/// Takes a record apart.
pub(crate) fn parse(content: &[u8]) -> Result<(Meta, &[u8]), Damage> {
    let bad = |_| Damage::Nonsense("it cannot be decoded");
    postcard::take_from_bytes(content).map_err(bad)
}
