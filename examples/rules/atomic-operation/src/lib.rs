//! A structure is changed outside a transaction, or inside one that has not logged it.
//!
//! The developer says which structures a crash must leave whole. Each of them may only be stored to
//! by a transaction that has logged those bytes, or has itself allocated them.
//!
//! **Guarantee.** A store is reported if and only if it touches a declared structure while its
//! thread has no open transaction, or an open one that does not cover all bytes of the structure
//! that are stored.
//!
//! **Source.** AGAMOTTO (OSDI'20), section 4.2.2, "Atomic Operation Oracle".
//!
//! **Deviations.** The oracle finds structures by their type in LLVM's bitcode. This rule takes
//! machine code, so the developer names bytes: in the program, by registering a variable
//! (`variable=NAME`), or by their offset in the pool (`offset=START+LEN`, in any file).
//!
//! Options are separated by commas; at least one structure must be given.

use std::collections::BTreeMap;

use brownout_rule::{
    Access, Address, Event, Info, Kind, Place, Pm, ProcessId, Reporter, Rule, Site,
};

/// See the module's header.
pub struct AtomicOperation {
    /// Names to wait for.
    names: Vec<String>,
    /// Offset and length, in every file.
    offsets: Vec<(u64, u64)>,
    /// Variables with one of the names, while they are registered: the bytes, and where that was
    /// done.
    variables: BTreeMap<(ProcessId, String), (Place, Site)>,
}

impl AtomicOperation {
    /// The parts of a store that belong to structures, and where those were declared if that was in
    /// the program.
    fn touched(&self, store: Place) -> Vec<(Place, Option<Site>)> {
        let variables = self
            .variables
            .values()
            .map(|(place, site)| (*place, Some(*site)));
        let offsets = self.offsets.iter().map(|&(offset, len)| {
            let place = Place::new(Address(0), len, store.file, offset);
            (place, None)
        });
        variables
            .chain(offsets)
            .filter_map(|(structure, site)| Some((store.intersection(structure)?, site)))
            .collect()
    }

    fn stored(
        &self,
        event: &Event<'_>,
        access: &Access<'_>,
        pm: &Pm<'_>,
        report: &mut Reporter<'_>,
    ) {
        for (part, declared) in self.touched(access.place) {
            let finding = if !pm.in_transaction(event.thread) {
                report
                    .finding("a structure is changed outside a transaction")
                    .text("stored outside a transaction")
                    .help("make the change in a transaction that logs the structure first")
            } else if !pm.is_logged(event.thread, part) {
                report
                    .finding("a structure is changed by a transaction that has not logged it")
                    .text("stored without being logged")
                    .help("log these bytes before the store")
            } else {
                continue;
            };
            let finding = match declared {
                Some(site) => finding.also(site, "the structure is declared here"),
                None => finding,
            };
            finding.place(part).submit();
        }
    }
}

impl Rule for AtomicOperation {
    fn new(options: &str) -> Result<Self, String> {
        let mut rule = AtomicOperation {
            names: Vec::new(),
            offsets: Vec::new(),
            variables: BTreeMap::new(),
        };
        for option in options.split(',').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("variable", name)) if !name.is_empty() => rule.names.push(name.to_string()),
                Some(("offset", range)) => {
                    rule.offsets.push(parse_range(range).ok_or_else(|| {
                        format!(
                            "{range:?} is not of the form START+LEN, two numbers, decimal or 0x…"
                        )
                    })?)
                }
                _ => {
                    return Err(format!(
                        "{option:?} is neither variable=NAME nor offset=START+LEN"
                    ));
                }
            }
        }
        if rule.names.is_empty() && rule.offsets.is_empty() {
            return Err(
                "it needs to know what to guard: variable=NAME or offset=START+LEN".to_string(),
            );
        }
        Ok(rule)
    }

    fn info(&self) -> Info {
        Info::correctness(
            "atomic-operation",
            "a structure is changed without a transaction that has logged it",
        )
    }

    fn event(&mut self, event: &Event<'_>, pm: &Pm<'_>, report: &mut Reporter<'_>) {
        match event.kind {
            Kind::Variable { name, place } => {
                let name = String::from_utf8_lossy(name).into_owned();
                if self.names.contains(&name) {
                    self.variables
                        .insert((event.process, name), (place, event.site()));
                }
            }
            Kind::VariableGone { name } => {
                let name = String::from_utf8_lossy(name).into_owned();
                self.variables.remove(&(event.process, name));
            }
            Kind::ProcessStart { .. } | Kind::ProcessExit => {
                self.variables
                    .retain(|(process, _), _| *process != event.process);
            }
            _ => {
                if let Some(access) = event.kind.stored() {
                    self.stored(event, access, pm, report);
                }
            }
        }
    }
}

fn parse_range(text: &str) -> Option<(u64, u64)> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    let (start, len) = text.split_once('+')?;
    Some((number(start)?, number(len)?))
}

brownout_rule::export_rule!(AtomicOperation);

#[cfg(test)]
mod tests {
    use super::*;
    use brownout_rule::testing::Bench;
    use brownout_rule::{FileId, ThreadId};

    const THREAD: ThreadId = ThreadId(1);

    /// At 0x7000 of the program and 0x200 of the file.
    fn place(skipped: u64, len: u64) -> Place {
        Place::new(Address(0x7000 + skipped), len, FileId(1), 0x200 + skipped)
    }

    fn store(skipped: u64, len: u64) -> Kind<'static> {
        Kind::Store(Access {
            place: place(skipped, len),
            bytes: &[],
        })
    }

    fn declared() -> Bench {
        let mut bench = Bench::new::<AtomicOperation>("variable=head").unwrap();
        bench.event(Kind::Variable {
            name: b"head",
            place: place(0, 16),
        });
        bench
    }

    #[test]
    fn store_outside_a_transaction() {
        let mut bench = declared();
        bench.event(store(8, 16));
        let finding = &bench.findings()[0];
        assert_eq!(
            finding.events[0].place(),
            Some(place(8, 8)),
            "only the structure's part"
        );
        assert_eq!(finding.events[1].site.unwrap().index.0, 1);
        assert_eq!(
            finding.events[1].site.unwrap().kind.role(),
            "variable",
            "where it was declared"
        );
    }

    #[test]
    fn store_that_is_not_or_only_partly_logged() {
        let mut bench = declared();
        bench.answers().in_transaction.push(THREAD);
        bench.event(store(0, 8));
        bench.answers().logged.push((THREAD, place(0, 4)));
        bench.event(store(0, 8));
        assert_eq!(bench.findings().len(), 2);
        assert!(bench.findings()[1].message.contains("has not logged"));
    }

    #[test]
    fn logged_stores_and_stores_elsewhere_are_fine() {
        let mut bench = declared();
        bench.event(store(16, 8));
        bench.answers().in_transaction.push(THREAD);
        bench.answers().logged.push((THREAD, place(0, 16)));
        bench.event(store(8, 16));
        bench.event(Kind::VariableGone { name: b"head" });
        bench.answers().in_transaction.clear();
        bench.event(store(0, 8));
        assert_eq!(bench.findings(), []);
    }

    #[test]
    fn structure_by_offset() {
        let mut bench = Bench::new::<AtomicOperation>("offset=0x204+4").unwrap();
        bench.event(store(8, 8));
        assert_eq!(bench.findings(), []);
        bench.event(store(0, 64));
        assert_eq!(bench.findings()[0].events[0].place(), Some(place(4, 4)));
    }

    #[test]
    fn every_kind_of_store_counts() {
        let access = Access {
            place: place(0, 8),
            bytes: &[],
        };
        let mut bench = declared();
        bench.event(Kind::NtStore(access));
        bench.event(Kind::Rmw(access));
        bench.event(Kind::KernelStore { syscall: 0, access });
        bench.event(Kind::Load(access));
        assert_eq!(bench.findings().len(), 3);
    }

    #[test]
    fn options_without_sense_are_refused() {
        for options in [
            "",
            "variable",
            "variable=",
            "offset=3",
            "offset=a+b",
            "size=3",
        ] {
            assert!(
                Bench::new::<AtomicOperation>(options).is_err(),
                "{options:?}"
            );
        }
    }
}
