//! What the sweeps share: options, and what a comparison comes to.

use anyhow::{Context, Result, bail, ensure};

/// What the command line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// So many rows, spread evenly over all.
    pub modules: Option<usize>,
    /// So many at a time; by default one a processor.
    pub jobs: Option<usize>,
    /// Only rows whose name contains this.
    pub only: Option<String>,
}

impl Options {
    pub fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options::default();
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            let value = words
                .next()
                .with_context(|| format!("{word} wants a value"))?;
            let number = || -> Result<usize> {
                let number = value
                    .parse()
                    .with_context(|| format!("{word} wants a number"))?;
                ensure!(number > 0, "{word} wants at least 1");
                Ok(number)
            };
            match word {
                "--modules" => options.modules = Some(number()?),
                "--jobs" => options.jobs = Some(number()?),
                "--only" => options.only = Some(value.to_owned()),
                other => bail!("no such option of a sweep: {other}"),
            }
        }
        Ok(options)
    }

    /// Those of all names that are asked for.
    pub fn select(&self, mut names: Vec<String>) -> Result<Vec<String>> {
        if let Some(only) = &self.only {
            names.retain(|name| name.contains(only));
        }
        if let Some(wanted) = self.modules
            && wanted < names.len()
        {
            let all = names.len();
            names = (0..wanted)
                .map(|index| names[index * all / wanted].clone())
                .collect();
        }
        ensure!(!names.is_empty(), "nothing of this sweep has such a name");
        Ok(names)
    }
}

/// What a comparison came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// What passes natively passes under the tool.
    Alike,
    /// Natively it does not pass either, or not in time, so there is nothing to compare.
    NotNatively(String),
    /// What passes natively and not under the tool.
    Differs(String),
    /// As above, but not when tried again with nothing beside it.
    DifferedOnce(String),
}

/// Which attempt it is. What is remembered of native runs is not used for the second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Try {
    /// Several are compared at a time.
    First,
    /// Nothing runs beside it.
    Again,
}
