//! For those who want single images tried: what is known is looked up, the rest is run.

use std::collections::BTreeMap;
use std::time::Duration;

use brownout_host::LaunchError;

use super::{Crash, LeftOver, Search};
use crate::execution::{Acknowledged, Execution};
use crate::executor::{Answer, Request, Want};
use crate::recording::{RecordOptions, Recording};
use crate::trie::{Reached, Read};
use crate::view::Image;

/// A recovery that was to be recorded.
pub type Recorded = Result<Box<Recording>, LaunchError>;

impl Search<'_> {
    /// What recovery makes of one image: looked up, or run.
    pub fn evaluate(&mut self, layer: usize, image: &Image) -> Result<Option<u32>, LaunchError> {
        let point = image.view.point;
        let trie = self.trie(layer, point);
        let see = |read: &Read| brownout_model::masked(&image.line(read.line), read.mask);
        if let Reached::Outcome(outcome, _) = self.known.walk(trie, see) {
            return Ok(Some(outcome));
        }
        let acknowledged = self.acknowledged_at(layer, point);
        let Some(execution) = self.recover(image, acknowledged, false)? else {
            return Ok(None);
        };
        let outcome = self.keep(layer, image, &execution);
        Ok(Some(outcome))
    }

    /// What recovery makes of several images. What must be run is run side by side. `None` if the
    /// search was stopped meanwhile.
    pub fn evaluate_all(
        &mut self,
        layer: usize,
        images: &[Image],
    ) -> Result<Option<Vec<u32>>, LaunchError> {
        let mut outcomes = Vec::new();
        // A few at a time: one of them may show what the next would.
        for images in images.chunks(self.executor.size().max(1)) {
            let mut requests = Vec::new();
            let mut unknown = Vec::new();
            for image in images {
                let point = image.view.point;
                let trie = self.trie(layer, point);
                let see = |read: &Read| brownout_model::masked(&image.line(read.line), read.mask);
                if let Reached::Outcome(..) = self.known.walk(trie, see) {
                    continue;
                }
                let acknowledged = self.acknowledged_at(layer, point);
                requests.push(self.recovery(image, acknowledged, false));
                unknown.push(image);
            }
            self.ledger.statistics.executions += requests.len() as u64;
            let Some(answers) = self.perform_all(requests)? else {
                return Ok(None);
            };
            for (image, answer) in unknown.into_iter().zip(answers) {
                if let Answer::Executed(execution) = answer {
                    let execution = execution?;
                    let turns = self.settings.runs.turns.are_wanted();
                    self.ledger.account(&execution, turns);
                    self.keep(layer, image, &execution);
                }
            }
            for image in images {
                let Some(outcome) = self.evaluate(layer, image)? else {
                    return Ok(None);
                };
                outcomes.push(outcome);
            }
        }
        Ok(Some(outcomes))
    }

    /// Adds what was run to what is known.
    fn keep(&mut self, layer: usize, image: &Image, execution: &Execution) -> u32 {
        let point = image.view.point;
        let trie = self.trie(layer, point);
        let see = |read: &Read| brownout_model::masked(&image.line(read.line), read.mask);
        if let Reached::Outcome(outcome, _) = self.known.walk(trie, see) {
            return outcome;
        }
        let outcome = self.known.intern(&execution.outcome);
        let node = self.known.reserve(trie, see);
        match self.known.insert(trie, node, execution, outcome) {
            Ok(()) => {
                self.ledger.statistics.paths += 1;
                let crash = Crash {
                    layer,
                    point,
                    image: image.clone(),
                };
                let distinct_max = self.settings.distinct_max;
                self.ledger.distinct(&crash, outcome, distinct_max);
                let circumstances = self.circumstances(layer, point);
                self.known.write_down(&circumstances, execution);
            }
            Err(_) => self.known.settle(trie, node, outcome),
        }
        outcome
    }

    /// Runs one recovery now; `None` if the search was stopped meanwhile.
    pub fn recover(
        &mut self,
        image: &Image,
        acknowledged: Acknowledged,
        detail: bool,
    ) -> Result<Option<Box<Execution>>, LaunchError> {
        self.ledger.statistics.executions += 1;
        let request = self.recovery(image, acknowledged, detail);
        match self.perform(request)? {
            Some(Answer::Executed(execution)) => {
                let execution = match execution {
                    Ok(execution) => execution,
                    Err(error) => return self.lost(error).map(|()| None),
                };
                let turns = self.settings.runs.turns.are_wanted();
                self.ledger.account(&execution, turns);
                Ok(Some(execution))
            }
            _ => Ok(None),
        }
    }

    /// Records recoveries side by side, so that they can be cut short; `None` if the search was
    /// stopped meanwhile.
    pub fn record_all(
        &mut self,
        images: Vec<Image>,
        options: RecordOptions,
    ) -> Result<Option<Vec<Recorded>>, LaunchError> {
        let recover = &self.settings.runs.recover;
        let request = |image| Request::recovery(recover, image, Want::Recording(options));
        let requests = images.into_iter().map(request).collect();
        let Some(answers) = self.perform_all(requests)? else {
            return Ok(None);
        };
        let recorded = answers.into_iter().filter_map(|answer| match answer {
            Answer::Recorded(recording) => Some(recording),
            Answer::Executed(_) => None,
        });
        Ok(Some(recorded.collect()))
    }

    /// So many things are worth being asked for at a time.
    pub fn at_a_time(&self) -> usize {
        2 * self.executor.size().max(1)
    }

    /// Has one thing done and waits for it. Nothing else is under way.
    fn perform(&mut self, request: Request) -> Result<Option<Answer>, LaunchError> {
        let mut answers = self.perform_all(vec![request])?;
        Ok(answers.as_mut().and_then(Vec::pop))
    }

    /// Has several things done at a time and waits for all; `None` if the search was stopped
    /// meanwhile.
    pub fn perform_all(
        &mut self,
        requests: Vec<Request>,
    ) -> Result<Option<Vec<Answer>>, LaunchError> {
        if self.is_over() {
            return Ok(None);
        }
        let ids: Vec<u64> = requests
            .into_iter()
            .map(|request| self.executor.start(request))
            .collect();
        let mut done = BTreeMap::new();
        while done.len() < ids.len() {
            self.tell();
            match self.executor.wait(Duration::from_millis(50)) {
                Some((id, result)) if ids.contains(&id) => {
                    done.insert(id, result);
                }
                Some(_) => {}
                None if self.executor.is_broken() => {
                    return Err(LaunchError::Bug(
                        "a thread that runs recoveries has ended".into(),
                    ));
                }
                None => {
                    self.is_over();
                }
            }
        }
        Ok((!self.is_over()).then(|| done.into_values().collect()))
    }

    /// Runs a sample of what was looked up, and compares. Returns how many differ.
    pub fn test_itself(&mut self) -> Result<u64, LaunchError> {
        let mut wrong = 0;
        let mut left = self.settings.self_test;
        while left > 0
            && let Some((item, expected)) = self.sample.pop()
        {
            if self.layers[item.layer].recording.points.is_empty() {
                continue;
            }
            left -= 1;
            let view = self.view(item.layer, item.point);
            let files = self.layers.files(item.layer, item.point);
            let image = Image::newest(&view, &item.narrowed, &files);
            let acknowledged = self.acknowledged_at(item.layer, item.point);
            let Some(execution) = self.recover(&image, acknowledged, false)? else {
                self.ledger.left_over.get_or_insert(LeftOver::SelfTest);
                break;
            };
            self.ledger.statistics.self_tested += 1;
            if self.known.outcomes[expected as usize] != execution.outcome {
                wrong += 1;
            }
        }
        Ok(wrong)
    }
}
