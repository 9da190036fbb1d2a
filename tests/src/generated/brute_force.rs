//! Every memory that a crash may leave, at every place of a program.
//!
//! Which contents of a line are legal is asked of [`brownout_model::reference`], line by line,
//! because it is exponential in the number of stores; lines are independent under x86, so that the
//! memories are their product. (A test compares with the reference on all lines at once.)
//!
//! A crash can only fall between two events here. Inside a store of several pieces it leaves
//! nothing that a crash after it cannot leave, except under eADR, where the pieces are events of
//! their own.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use brownout_model::{
    ByteRange, Config, Domain, Event, Key, LINE_BYTES, Op as ModelOp, Write, reference,
};

use super::script::Script;

/// No place of a generated program has more legal memories.
pub const STATES_MAX: usize = 256;

/// A whole pool.
pub type Image = Vec<u8>;

/// The legal memories of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memories {
    /// All of them.
    pub images: Vec<Image>,
    /// After so many steps, which ones. There is one more than there are steps.
    pub by_position: Vec<BTreeSet<usize>>,
}

impl Memories {
    /// Enumerates. Fails if there are too many.
    pub fn of(script: &Script, config: Config) -> Result<Memories> {
        let mut events = script.events();
        if config.domain == Domain::Eadr {
            // Every piece is durable by itself, so a crash between two shows.
            events = events
                .iter()
                .flat_map(|event| pieces(event, config))
                .collect();
        }
        Memories::of_events(&script.initial_image(), &events, config)
    }

    pub(super) fn of_events(
        initial: &Image,
        events: &[Option<Event<'static>>],
        config: Config,
    ) -> Result<Memories> {
        let mut by_line: BTreeMap<u64, Vec<Event<'static>>> = stored_lines(events)
            .into_iter()
            .map(|line| (line, Vec::new()))
            .collect();
        let mut numbers: BTreeMap<Image, usize> = BTreeMap::new();
        let mut contents: BTreeMap<u64, BTreeSet<Image>> = BTreeMap::new();
        let mut by_position = Vec::new();
        for event in std::iter::once(&None).chain(events) {
            for (line, history) in &mut by_line {
                if let Some(event) = event {
                    history.push(in_line(event, *line));
                }
                if event.is_some() || !contents.contains_key(line) {
                    contents.insert(*line, line_contents(initial, *line, history, config)?);
                }
            }
            let states = contents.values().map(BTreeSet::len).product::<usize>();
            ensure!(states <= STATES_MAX, "{states} memories are too many");
            let mut images = vec![initial.clone()];
            for (line, contents) in &contents {
                let at = (line * LINE_BYTES) as usize;
                images = contents
                    .iter()
                    .flat_map(|content| {
                        images.iter().map(move |image| {
                            let mut image = image.clone();
                            image[at..at + content.len()].copy_from_slice(content);
                            image
                        })
                    })
                    .collect();
            }
            let position = images.into_iter().map(|image| {
                let next = numbers.len();
                *numbers.entry(image).or_insert(next)
            });
            by_position.push(position.collect());
        }
        let mut images = vec![Image::new(); numbers.len()];
        for (image, number) in numbers {
            images[number] = image;
        }
        Ok(Memories {
            images,
            by_position,
        })
    }
}

/// The parts of an event between which a crash can fall.
fn pieces(event: &Option<Event<'static>>, config: Config) -> Vec<Option<Event<'static>>> {
    let Some(event) = event else {
        return vec![None];
    };
    let owned = |write: &Write<'_>| {
        Write::new(
            write.range().start(),
            write.bytes().unwrap_or_default().to_vec(),
        )
    };
    let pieces = event.pieces(config.atomicity).into_iter().map(|piece| {
        let op = match &piece.op {
            ModelOp::Store(write) => ModelOp::Store(owned(write)),
            ModelOp::NtStore(write) => ModelOp::NtStore(owned(write)),
            ModelOp::Rmw(write) => ModelOp::Rmw(owned(write)),
            _ => event.op.clone(),
        };
        Some(Event::new(event.thread, op))
    });
    pieces.collect()
}

fn stored_lines(events: &[Option<Event<'static>>]) -> BTreeSet<u64> {
    events
        .iter()
        .flatten()
        .filter_map(|event| match &event.op {
            ModelOp::Store(write) | ModelOp::NtStore(write) | ModelOp::Rmw(write) => {
                Some(write.range())
            }
            _ => None,
        })
        .flat_map(|range| range.split(LINE_BYTES))
        .map(|part| part.start().0 / LINE_BYTES)
        .collect()
}

/// What an event is to one line. A store elsewhere is nothing, for which a load stands; of a locked
/// addition elsewhere the fence remains.
fn in_line(event: &Event<'static>, line: u64) -> Event<'static> {
    let part = |write: &Write<'static>| -> Option<Write<'static>> {
        let from = write.range().start().0;
        let kept: Vec<(u64, u8)> = (from..)
            .zip(write.bytes().unwrap_or_default().iter().copied())
            .filter(|(addr, _)| addr / LINE_BYTES == line)
            .collect();
        let first = kept.first()?.0;
        let bytes: Vec<u8> = kept.into_iter().map(|(_, byte)| byte).collect();
        Some(Write::new(Key(first), bytes))
    };
    let op = match &event.op {
        ModelOp::Store(write) => part(write).map(ModelOp::Store),
        ModelOp::NtStore(write) => part(write).map(ModelOp::NtStore),
        ModelOp::Rmw(write) => Some(part(write).map_or(ModelOp::Locked, ModelOp::Rmw)),
        other => Some(other.clone()),
    };
    let nothing = || ModelOp::Load(ByteRange::new(Key(0), 0));
    Event::new(event.thread, op.unwrap_or_else(nothing))
}

fn line_contents(
    initial: &Image,
    line: u64,
    history: &[Event<'static>],
    config: Config,
) -> Result<BTreeSet<Image>> {
    let bytes = line * LINE_BYTES..(line + 1) * LINE_BYTES;
    let before: reference::Image = bytes.map(|addr| (addr, initial[addr as usize])).collect();
    let images = reference::enumerate(config, &before, history)
        .context("a line has too many stores for the reference")?;
    Ok(images
        .into_iter()
        .map(|image| image.into_values().collect())
        .collect())
}
