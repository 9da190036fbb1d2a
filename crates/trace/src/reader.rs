//! Reads a trace.
//!
//! Guarantee: whatever the bytes, the reader yields events or an error that says where, never
//! panics, and holds at most one block (some 32 MiB before compression, its site table, and the
//! index). Every event that it yields was in a block whose checksum is right.
//!
//! A trace that was cut off (killed recorder, full disk) yields all events of its whole blocks and
//! then [`Error::Truncated`]; so a consumer that stops at `None` has seen a recording that ended
//! in order. After an error the reader stays where it is; [`Reader::resync`] goes on behind the
//! damage.
//!
//! ```
//! # use brownout_trace::{Meta, Reader, Writer};
//! # let mut file = Vec::new();
//! # Writer::new(&mut file, &Meta::default())?.finish()?;
//! let mut reader = Reader::new(std::io::Cursor::new(file))?;
//! while let Some(event) = reader.next()? {
//!     println!("{:?}", event.kind);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use zstd::bulk::Decompressor;

use crate::codec::{Decoder, Fault};
use crate::error::{Error, Place};
use crate::event::Event;
use crate::format::{
    BLOCK_HEADER_LEN, BlockEntry, BlockHeader, BlockKind, Encoding, HEADER_FIXED_LEN, META_LEN_MAX,
    Meta, SYNC, TRAILER_LEN, VERSION, checksum, decode_file_header, decode_trailer,
    header_checksum_matches,
};

/// What [`Reader::resync`] stepped over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// First byte that was skipped.
    pub offset_from: u64,
    /// Where reading goes on.
    pub offset_to: u64,
    /// Index of the first event that is lost.
    pub event_from: u64,
    /// Index of the next event.
    pub event_to: u64,
}

/// Reads events from `R`, which need not be buffered.
pub struct Reader<R> {
    input: R,
    meta: Meta,
    decoder: Decoder,
    decompressor: Decompressor<'static>,
    /// The payload as stored.
    stored: Vec<u8>,
    footer: Option<Footer>,
    blocks_start: u64,
    file_len: u64,
    /// Where `input` stands; the next block begins here.
    offset: u64,
    /// Where the block that is being taken apart begins.
    block_offset: u64,
    /// Number of the next block.
    block: u64,
    /// Index of the next event.
    event: u64,
    /// A resync or a seek has skipped blocks: their number is not known.
    skipped: bool,
    state: State,
}

struct Footer {
    /// Empty if the writer left it out.
    index: Vec<BlockEntry>,
    events: u64,
    duration: Option<Duration>,
}

enum State {
    Reading,
    /// The footer was reached.
    Ended,
    /// Reading stopped here.
    Failed(Error),
}

/// A block that [`Reader::load_block`] found sound.
enum Loaded {
    Events,
    End,
}

/// A failure inside one block, before its place is attached.
enum BlockError {
    Fault(Fault),
    CutOff,
    Io(io::Error),
}

impl From<Fault> for BlockError {
    fn from(fault: Fault) -> Self {
        BlockError::Fault(fault)
    }
}

impl From<io::Error> for BlockError {
    fn from(error: io::Error) -> Self {
        BlockError::Io(error)
    }
}

impl Reader<File> {
    /// Opens a trace file.
    pub fn open(path: &Path) -> Result<Reader<File>, Error> {
        let file = File::open(path).map_err(|error| Error::io(0, error))?;
        Reader::new(file)
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Reads the header, and the footer if there is one.
    pub fn new(mut input: R) -> Result<Reader<R>, Error> {
        let io_at = |offset| move |error| Error::io(offset, error);
        let file_len = input.seek(SeekFrom::End(0)).map_err(io_at(0))?;
        input.seek(SeekFrom::Start(0)).map_err(io_at(0))?;

        let mut fixed = [0; HEADER_FIXED_LEN];
        let got = read_up_to(&mut input, &mut fixed).map_err(io_at(0))?;
        if got == 0 {
            return Err(Error::NotATrace {
                what: "the file is empty",
            });
        }
        let too_short = Error::NotATrace {
            what: "the file ends inside the header",
        };
        if got < fixed.len() {
            return Err(too_short);
        }
        let (version, meta_len) = decode_file_header(&fixed).ok_or(Error::NotATrace {
            what: "it begins differently",
        })?;
        if version != VERSION {
            return Err(Error::UnsupportedVersion { found: version });
        }
        if meta_len > META_LEN_MAX {
            return Err(Error::NotATrace {
                what: "its header is longer than the format allows",
            });
        }
        let mut header = fixed.to_vec();
        let rest_len = meta_len + 8;
        let rest = (&mut input).take(rest_len as u64).read_to_end(&mut header);
        if rest.map_err(io_at(HEADER_FIXED_LEN as u64))? < rest_len {
            return Err(too_short);
        }
        let (body, sum) = header.split_at(header.len() - 8);
        if !header_checksum_matches(body, sum) {
            return Err(Error::NotATrace {
                what: "its header's checksum is wrong",
            });
        }
        let meta =
            serde_json::from_slice(&body[HEADER_FIXED_LEN..]).map_err(|_| Error::NotATrace {
                what: "its metadata is unreadable",
            })?;

        let blocks_start = header.len() as u64;
        let mut reader = Reader {
            input,
            meta,
            decoder: Decoder::default(),
            decompressor: Decompressor::new().map_err(io_at(0))?,
            stored: Vec::new(),
            footer: None,
            blocks_start,
            file_len,
            offset: blocks_start,
            block_offset: blocks_start,
            block: 0,
            event: 0,
            skipped: false,
            state: State::Reading,
        };
        // A damaged footer is reported when reading gets there; until then it is just absent.
        reader.footer = reader.read_footer().unwrap_or(None);
        reader.goto(blocks_start)?;
        Ok(reader)
    }

    /// What the trace says about its making.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Whether the footer is there: the recorder ended in order.
    pub fn is_complete(&self) -> bool {
        self.footer.is_some()
    }

    /// Number of events, if the footer is there.
    pub fn event_count(&self) -> Option<u64> {
        self.footer.as_ref().map(|footer| footer.events)
    }

    /// How long the recorded run took, if the footer tells.
    pub fn duration(&self) -> Option<Duration> {
        self.footer.as_ref().and_then(|footer| footer.duration)
    }

    /// Length of the file in bytes.
    pub fn byte_count(&self) -> u64 {
        self.file_len
    }

    /// Number of blocks read so far (after a seek or a resync: the number of the next block).
    pub fn block_count(&self) -> u64 {
        self.block
    }

    /// Index of the event that [`Reader::next`] returns next.
    pub fn position(&self) -> u64 {
        self.event
    }

    /// The next event, or `None` at the end of a recording that ended in order.
    ///
    /// After an error, every further call returns that error again.
    // The events borrow from the reader, which an `Iterator` cannot express.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Event<'_>>, Error> {
        if self.decoder.remaining() == 0 && !self.next_block()? {
            return Ok(None);
        }
        match self.decoder.next() {
            Ok(event) => {
                self.event += 1;
                Ok(Some(event))
            }
            Err(what) => {
                let place = Place {
                    offset: self.block_offset,
                    block: self.block - 1,
                    event: self.event,
                };
                let error = Error::Corrupt { place, what };
                self.state = State::Failed(error.clone());
                Err(error)
            }
        }
    }

    /// Goes to event `index`, so that [`Reader::next`] returns it. Uses the index, or walks the
    /// block headers if there is none. An index behind the last event leads to the end.
    pub fn seek_to_event(&mut self, index: u64) -> Result<(), Error> {
        self.state = State::Reading;
        let entries = self.footer.as_ref().map_or(&[][..], |footer| &footer.index);
        let nearest = entries.partition_point(|entry| entry.first_event <= index);
        let start = nearest
            .checked_sub(1)
            .and_then(|nth| Some((nth, *entries.get(nth)?)));
        let (block, entry) = start.unwrap_or((
            0,
            BlockEntry {
                offset: self.blocks_start,
                first_event: 0,
            },
        ));
        self.goto(entry.offset)?;
        self.event = entry.first_event;
        self.block = block as u64;
        self.skipped = false;

        loop {
            // Without an index, payloads of whole blocks before `index` need not be read.
            match self.peek_header() {
                Ok(Some(header))
                    if header.kind == BlockKind::Events
                        && header.first_event == self.event
                        && header.first_event + u64::from(header.count) <= index =>
                {
                    let past = self.offset + BLOCK_HEADER_LEN as u64 + u64::from(header.stored_len);
                    if past > self.file_len {
                        break;
                    }
                    self.goto(past)?;
                    self.event += u64::from(header.count);
                    self.block += 1;
                }
                Ok(_) | Err(BlockError::Fault(_) | BlockError::CutOff) => break,
                Err(BlockError::Io(error)) => return Err(self.fail_io(error)),
            }
        }
        while self.event < index {
            if self.next()?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// After an error, searches for the next sound block behind the damage.
    ///
    /// `None`: there is none, and the error stands. The lost events keep their indices, so the
    /// positions of those behind the gap are right.
    pub fn resync(&mut self) -> Result<Option<Gap>, Error> {
        let State::Failed(error) = &self.state else {
            return Ok(None);
        };
        let error = error.clone();
        let from = error
            .place()
            .map_or(self.block_offset, |place| place.offset);
        let event_from = self.event;
        let block_from = self.block;
        let mut search = from + 1;
        self.skipped = true;
        while let Some(candidate) = self.find_sync(search)? {
            self.state = State::Reading;
            self.goto(candidate)?;
            self.event = event_from;
            self.block = block_from;
            match self.load_block() {
                Ok(loaded) => {
                    if let Loaded::End = loaded {
                        self.state = State::Ended;
                    }
                    return Ok(Some(Gap {
                        offset_from: from,
                        offset_to: candidate,
                        event_from,
                        event_to: self.event,
                    }));
                }
                Err(BlockError::Io(error)) => return Err(self.fail_io(error)),
                Err(BlockError::Fault(_) | BlockError::CutOff) => search = candidate + 1,
            }
        }
        self.event = event_from;
        self.block = block_from;
        self.state = State::Failed(error);
        Ok(None)
    }

    fn goto(&mut self, offset: u64) -> Result<(), Error> {
        self.decoder.clear();
        self.offset = offset;
        match self.input.seek(SeekFrom::Start(offset)) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.fail_io(error)),
        }
    }

    fn fail_io(&mut self, error: io::Error) -> Error {
        let error = Error::io(self.offset, error);
        self.state = State::Failed(error.clone());
        error
    }

    /// Loads the next block of events. False at the end of the trace.
    #[inline(never)]
    fn next_block(&mut self) -> Result<bool, Error> {
        match &self.state {
            State::Reading => {}
            State::Ended => return Ok(false),
            State::Failed(error) => return Err(error.clone()),
        }
        let place = Place {
            offset: self.offset,
            block: self.block,
            event: self.event,
        };
        let error = match self.load_block() {
            Ok(Loaded::Events) => return Ok(true),
            Ok(Loaded::End) => {
                self.state = State::Ended;
                return Ok(false);
            }
            Err(BlockError::Io(error)) => return Err(self.fail_io(error)),
            Err(BlockError::CutOff) => Error::Truncated(Place {
                offset: self.file_len,
                ..place
            }),
            Err(BlockError::Fault(what)) => Error::Corrupt { place, what },
        };
        // `resync` searches from the beginning of the bad block.
        self.block_offset = place.offset;
        self.state = State::Failed(error.clone());
        Err(error)
    }

    /// Reads and checks the block at `self.offset`, and advances behind it if it is sound.
    fn load_block(&mut self) -> Result<Loaded, BlockError> {
        let start = self.offset;
        let header = self.read_header()?;
        if self.skipped {
            // Behind a gap, what is known is only that numbers never go back.
            if header.first_event < self.event {
                return Err(BlockError::Fault("its event numbers go back"));
            }
        } else if header.first_event != self.event || u64::from(header.sequence) != self.block {
            return Err(BlockError::Fault("a block before it is missing"));
        }
        self.read_stored(&header)?;
        let behind = start + BLOCK_HEADER_LEN as u64 + u64::from(header.stored_len);

        if header.kind == BlockKind::Index {
            parse_index(&self.stored, &header, self.blocks_start..start)?;
            let mut trailer = [0; TRAILER_LEN];
            if read_up_to(&mut self.input, &mut trailer)? < TRAILER_LEN {
                return Err(BlockError::CutOff);
            }
            if decode_trailer(&trailer) != Some(start) {
                return Err(BlockError::Fault("the trailer behind the footer is wrong"));
            }
            if behind + TRAILER_LEN as u64 != self.file_len {
                return Err(BlockError::Fault("bytes are left over behind the footer"));
            }
            self.offset = self.file_len;
            self.event = header.first_event;
            return Ok(Loaded::End);
        }

        let raw_len = header.raw_len as usize;
        let stored = &self.stored;
        let decompressor = &mut self.decompressor;
        self.decoder
            .load(header.count, |raw| -> Result<(), BlockError> {
                match header.encoding {
                    Encoding::Plain => raw.extend_from_slice(stored),
                    Encoding::Zstd => {
                        raw.resize(raw_len, 0);
                        let got = decompressor
                            .decompress_to_buffer(stored, &mut raw[..])
                            .map_err(|_| BlockError::Fault("it cannot be decompressed"))?;
                        raw.truncate(got);
                    }
                }
                if raw.len() != raw_len {
                    return Err(BlockError::Fault("its length is not as its header says"));
                }
                Ok(())
            })?;
        self.block_offset = start;
        self.offset = behind;
        self.block = u64::from(header.sequence) + 1;
        self.event = header.first_event;
        Ok(Loaded::Events)
    }

    fn read_header(&mut self) -> Result<BlockHeader, BlockError> {
        let mut bytes = [0; BLOCK_HEADER_LEN];
        if read_up_to(&mut self.input, &mut bytes)? < BLOCK_HEADER_LEN {
            return Err(BlockError::CutOff);
        }
        Ok(BlockHeader::decode(&bytes)?)
    }

    /// Reads the payload and checks its checksum. Allocates what the file has, not what it says.
    fn read_stored(&mut self, header: &BlockHeader) -> Result<(), BlockError> {
        let len = u64::from(header.stored_len);
        self.stored.clear();
        let got = (&mut self.input).take(len).read_to_end(&mut self.stored)?;
        if (got as u64) < len {
            return Err(BlockError::CutOff);
        }
        if checksum(&self.stored) != header.payload_checksum {
            return Err(BlockError::Fault("the block's checksum is wrong"));
        }
        Ok(())
    }

    /// The header of the next block, without moving. `None` at the end of the file.
    fn peek_header(&mut self) -> Result<Option<BlockHeader>, BlockError> {
        if self.offset == self.file_len {
            return Ok(None);
        }
        let header = self.read_header();
        self.input.seek(SeekFrom::Start(self.offset))?;
        header.map(Some)
    }

    fn read_footer(&mut self) -> Result<Option<Footer>, BlockError> {
        let least = self.blocks_start + (BLOCK_HEADER_LEN + TRAILER_LEN) as u64;
        if self.file_len < least {
            return Ok(None);
        }
        let trailer_at = self.file_len - TRAILER_LEN as u64;
        self.input.seek(SeekFrom::Start(trailer_at))?;
        let mut trailer = [0; TRAILER_LEN];
        if read_up_to(&mut self.input, &mut trailer)? < TRAILER_LEN {
            return Ok(None);
        }
        let Some(footer_at) = decode_trailer(&trailer) else {
            return Ok(None);
        };
        if footer_at < self.blocks_start || footer_at > trailer_at {
            return Ok(None);
        }
        self.input.seek(SeekFrom::Start(footer_at))?;
        let header = self.read_header()?;
        if header.kind != BlockKind::Index {
            return Ok(None);
        }
        self.read_stored(&header)?;
        if footer_at + BLOCK_HEADER_LEN as u64 + u64::from(header.stored_len) != trailer_at {
            return Ok(None);
        }
        Ok(Some(parse_index(
            &self.stored,
            &header,
            self.blocks_start..footer_at,
        )?))
    }

    /// Offset of the first sync marker at or behind `from`.
    fn find_sync(&mut self, from: u64) -> Result<Option<u64>, Error> {
        const WINDOW: usize = 1 << 16;
        let mut window = vec![0; WINDOW];
        let mut at = from;
        loop {
            if at >= self.file_len {
                return Ok(None);
            }
            self.goto(at)?;
            let got = match read_up_to(&mut self.input, &mut window) {
                Ok(got) => got,
                Err(error) => return Err(self.fail_io(error)),
            };
            if let Some(nth) = window[..got]
                .windows(SYNC.len())
                .position(|bytes| bytes == SYNC)
            {
                return Ok(Some(at + nth as u64));
            }
            if got < WINDOW {
                return Ok(None);
            }
            // A marker may lie across the boundary.
            at += (WINDOW - SYNC.len() + 1) as u64;
        }
    }
}

/// `blocks` is where the event blocks lie.
fn parse_index(payload: &[u8], header: &BlockHeader, blocks: Range<u64>) -> Result<Footer, Fault> {
    const WRONG: Fault = "the index does not agree with the file";
    let mut rest = payload;
    let duration = take_varint(&mut rest)?
        .checked_sub(1)
        .map(Duration::from_nanos);
    let mut index = Vec::new();
    let mut offset = blocks.start;
    let mut events = 0u64;
    while !rest.is_empty() {
        index.push(BlockEntry {
            offset,
            first_event: events,
        });
        let len = take_varint(&mut rest)?;
        // This also bounds the entries by the length of the file.
        if len < BLOCK_HEADER_LEN as u64 || len > blocks.end - offset {
            return Err(WRONG);
        }
        offset += len;
        events = events.checked_add(take_varint(&mut rest)?).ok_or(WRONG)?;
    }
    if !index.is_empty() && (index.len() != header.count as usize || events != header.first_event) {
        return Err(WRONG);
    }
    Ok(Footer {
        index,
        events: header.first_event,
        duration,
    })
}

fn take_varint(rest: &mut &[u8]) -> Result<u64, Fault> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first().ok_or("the index ends early")?;
        *rest = tail;
        n |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(n);
        }
    }
    Err("the index has a number that is too long")
}

/// Fills `buffer` as far as the input reaches.
fn read_up_to(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
