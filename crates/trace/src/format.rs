//! The trace file: its parts, their bytes, and their limits.
//!
//! ```text
//! file    := header block* [footer trailer]              numbers are little-endian
//! header  := MAGIC(8) version(4) meta_length(4) meta(JSON) checksum(8, of all before)
//! block   := SYNC(8) kind(4) sequence(4) first_event(8) count(4) raw_length(4)
//!            stored_length(4) encoding(4) payload_checksum(8) header_checksum(8, of all before)
//!            payload(stored_length)
//! footer  := a block of kind INDEX: first_event is the number of events, count that of blocks;
//!            payload := duration_ns + 1 or 0, then per block: length in the file, events (varints)
//! trailer := offset of the footer(8) checksum(8) END_MAGIC(8)
//! ```
//!
//! Guarantees:
//!
//! * Each block is checked and decoded by itself, so a file is readable up to its last whole
//!   block, and, through the sync marker, behind a damaged one.
//! * A file without footer is one whose recording did not end in order.
//! * No length in a file is believed before it has been checked against the limits here.
//!
//! Checksums are XXH3 (64 bits): they find damage, they do not authenticate. The payload's inner
//! layout is described in `codec`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::codec::EVENTS_PER_BLOCK_MAX;

/// Version of the format that this crate writes, and the only one that it reads.
pub const VERSION: u32 = 1;

/// First byte outside ASCII and a line end inside, as in PNG: text-mode transfers show at once.
pub(crate) const MAGIC: [u8; 8] = *b"\x89BRNOUT\n";
pub(crate) const END_MAGIC: [u8; 8] = *b"\x89BRNEND\n";
/// Random, so that payloads hardly ever contain it; a resync checks the header behind it anyway.
pub(crate) const SYNC: [u8; 8] = [0xb1, 0x6f, 0xd0, 0x93, 0x0a, 0xe5, 0x7c, 0x4e];

pub(crate) const HEADER_FIXED_LEN: usize = 16;
pub(crate) const BLOCK_HEADER_LEN: usize = 56;
pub(crate) const TRAILER_LEN: usize = 24;

/// Longest metadata.
pub(crate) const META_LEN_MAX: usize = 1 << 20;
/// Longest payload of a block before compression; bounds what a reader allocates.
pub(crate) const RAW_LEN_MAX: usize = 32 << 20;
/// Most bytes that one event may carry; [`crate::Writer`] splits longer writes.
pub const PAYLOAD_LEN_MAX: usize = 8 << 20;

/// What a trace says about its own making.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// The recorder and its version, such as `brownout 0.1.0`.
    pub tool: String,
    /// The recorded command with its arguments; bytes that are not UTF-8 are replaced.
    pub command: Vec<String>,
    /// Start of the recording, milliseconds since 1970; absent in deterministic recordings.
    pub created_unix_ms: Option<u64>,
    /// Whatever else the recorder wants to leave, such as its options.
    pub notes: BTreeMap<String, String>,
}

pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The file header. Metadata that exceeds the limit loses its notes, then its arguments: a trace
/// without them is better than none.
pub(crate) fn encode_file_header(meta: &Meta) -> Vec<u8> {
    let mut json = serde_json::to_vec(meta).unwrap_or_default();
    if json.len() > META_LEN_MAX {
        let short = Meta {
            tool: meta.tool.chars().take(256).collect(),
            command: meta
                .command
                .iter()
                .take(1)
                .map(|arg| arg.chars().take(4096).collect())
                .collect(),
            created_unix_ms: meta.created_unix_ms,
            notes: BTreeMap::new(),
        };
        json = serde_json::to_vec(&short).unwrap_or_default();
    }
    let mut out = Vec::with_capacity(HEADER_FIXED_LEN + json.len() + 8);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(json.len() as u32).to_le_bytes());
    out.extend_from_slice(&json);
    let sum = checksum(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Version and metadata length of a file header's fixed part, if it is one.
pub(crate) fn decode_file_header(fixed: &[u8; HEADER_FIXED_LEN]) -> Option<(u32, usize)> {
    (fixed[..8] == MAGIC).then(|| (u32_at(fixed, 8), u32_at(fixed, 12) as usize))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Events,
    Index,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Plain,
    Zstd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub kind: BlockKind,
    pub sequence: u32,
    pub first_event: u64,
    pub count: u32,
    pub raw_len: u32,
    pub stored_len: u32,
    pub encoding: Encoding,
    pub payload_checksum: u64,
}

impl BlockHeader {
    pub(crate) fn encode(&self) -> [u8; BLOCK_HEADER_LEN] {
        let mut out = [0; BLOCK_HEADER_LEN];
        let kind: u32 = match self.kind {
            BlockKind::Events => 0,
            BlockKind::Index => 1,
        };
        let encoding: u32 = match self.encoding {
            Encoding::Plain => 0,
            Encoding::Zstd => 1,
        };
        out[..8].copy_from_slice(&SYNC);
        out[8..12].copy_from_slice(&kind.to_le_bytes());
        out[12..16].copy_from_slice(&self.sequence.to_le_bytes());
        out[16..24].copy_from_slice(&self.first_event.to_le_bytes());
        out[24..28].copy_from_slice(&self.count.to_le_bytes());
        out[28..32].copy_from_slice(&self.raw_len.to_le_bytes());
        out[32..36].copy_from_slice(&self.stored_len.to_le_bytes());
        out[36..40].copy_from_slice(&encoding.to_le_bytes());
        out[40..48].copy_from_slice(&self.payload_checksum.to_le_bytes());
        let sum = checksum(&out[..48]);
        out[48..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Checks everything that the header alone can tell.
    pub(crate) fn decode(bytes: &[u8; BLOCK_HEADER_LEN]) -> Result<BlockHeader, &'static str> {
        if bytes[..8] != SYNC {
            return Err("no block begins here");
        }
        if u64_at(bytes, 48) != checksum(&bytes[..48]) {
            return Err("the block header's checksum is wrong");
        }
        let header = BlockHeader {
            kind: match u32_at(bytes, 8) {
                0 => BlockKind::Events,
                1 => BlockKind::Index,
                _ => return Err("the block is of unknown kind"),
            },
            sequence: u32_at(bytes, 12),
            first_event: u64_at(bytes, 16),
            count: u32_at(bytes, 24),
            raw_len: u32_at(bytes, 28),
            stored_len: u32_at(bytes, 32),
            encoding: match u32_at(bytes, 36) {
                0 => Encoding::Plain,
                1 => Encoding::Zstd,
                _ => return Err("the block is compressed in an unknown way"),
            },
            payload_checksum: u64_at(bytes, 40),
        };
        if header.raw_len as usize > RAW_LEN_MAX || header.stored_len > header.raw_len {
            return Err("the block is longer than the format allows");
        }
        if header.kind == BlockKind::Events
            && (header.count == 0 || header.count > EVENTS_PER_BLOCK_MAX)
        {
            return Err("the block's number of events is not allowed");
        }
        if header
            .first_event
            .checked_add(u64::from(header.count))
            .is_none()
        {
            return Err("the block's event numbers are not allowed");
        }
        Ok(header)
    }
}

/// A block as the index knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockEntry {
    pub offset: u64,
    pub first_event: u64,
}

pub(crate) fn encode_trailer(footer_offset: u64) -> [u8; TRAILER_LEN] {
    let mut out = [0; TRAILER_LEN];
    let offset = footer_offset.to_le_bytes();
    out[..8].copy_from_slice(&offset);
    out[8..16].copy_from_slice(&checksum(&offset).to_le_bytes());
    out[16..].copy_from_slice(&END_MAGIC);
    out
}

pub(crate) fn decode_trailer(bytes: &[u8; TRAILER_LEN]) -> Option<u64> {
    let sound = bytes[16..] == END_MAGIC && u64_at(bytes, 8) == checksum(&bytes[..8]);
    sound.then(|| u64_at(bytes, 0))
}

pub(crate) fn header_checksum_matches(all_but_sum: &[u8], sum: &[u8]) -> bool {
    sum.len() == 8 && u64_at(sum, 0) == checksum(all_but_sum)
}
