//! How a rule says what is wrong.

use crate::abi::{RawBytes, RawFinding, RawFindingEvent};
use crate::event::{Event, Place, Site};
use crate::pm::Link;

/// Takes findings.
///
/// Report every occurrence: the tool groups findings of one rule whose code is the same, and counts
/// them.
pub struct Reporter<'a> {
    link: Link<'a>,
    /// `None` at the end of the run.
    event: Option<&'a Event<'a>>,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(link: Link<'a>, event: Option<&'a Event<'a>>) -> Self {
        Reporter { link, event }
    }

    /// Begins a finding about the current event. In [`Rule::end`](crate::Rule::end) it is about the
    /// end of the run, which has no place in the code: [`FindingBuilder::at`] gives it one.
    ///
    /// `message`: one sentence, no final stop, the same for every occurrence (addresses go into
    /// notes).
    pub fn finding(&mut self, message: impl Into<String>) -> FindingBuilder<'_> {
        let here = self.event.map(Event::site).unwrap_or_default();
        FindingBuilder {
            link: self.link,
            message: message.into(),
            events: vec![(here, "it happens here".into())],
            help: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// A finding that is being put together. [`FindingBuilder::submit`] reports it.
#[must_use = "a finding is reported by `submit`"]
pub struct FindingBuilder<'a> {
    link: Link<'a>,
    message: String,
    /// Never empty.
    events: Vec<(Site, String)>,
    help: Vec<String>,
    notes: Vec<String>,
}

impl FindingBuilder<'_> {
    /// Where to look first, instead of the current event.
    pub fn at(mut self, site: Site) -> Self {
        self.events[0].0 = site;
        self
    }

    /// What happens at the first place, one line, no final stop: "the same range is logged again".
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.events[0].1 = text.into();
        self
    }

    /// Which bytes the first place is about, instead of those of its event.
    pub fn place(mut self, place: Place) -> Self {
        self.events[0].0.place = place;
        self
    }

    /// Another event that belongs to it, and what happened there: "first logged here".
    pub fn also(mut self, site: Site, text: impl Into<String>) -> Self {
        self.events.push((site, text.into()));
        self
    }

    /// What to do about it. Most useful first; sentences without final stop.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// What else is worth knowing.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Reports it.
    pub fn submit(self) {
        let raw = |text: &String| RawBytes::new(text.as_bytes());
        let events: Vec<RawFindingEvent> = self
            .events
            .iter()
            .map(|(site, text)| RawFindingEvent {
                site: *site,
                text: raw(text),
            })
            .collect();
        let help: Vec<RawBytes> = self.help.iter().map(raw).collect();
        let notes: Vec<RawBytes> = self.notes.iter().map(raw).collect();
        self.link.report(&RawFinding {
            size: size_of::<RawFinding>() as u32,
            reserved: 0,
            message: raw(&self.message),
            events: events.as_ptr(),
            event_count: events.len(),
            help: help.as_ptr(),
            help_count: help.len(),
            notes: notes.as_ptr(),
            note_count: notes.len(),
        });
    }
}
