//! What PMDK's pmreorder does with a log, written anew from its observable behaviour (PMDK 1.12).
//!
//! Facts: the log is read as UTF-8 text and cut at `|`. The last element with START in it begins
//! the log, the last one with STOP ends it. What precedes the first `;` names the operation, in any
//! case; whatever is no operation must end in `.BEGIN` or `.END` and nest. A value must fit its
//! size. The offset of a file is ignored, its length in the log only bounds addresses. A
//! registration at the place of an earlier one is dropped. A flush takes every store that it
//! touches. At a fence after a flush, the flushed stores are done in order, each in every file that
//! has its address; the others wait.

use std::collections::HashMap;

#[derive(Clone, Debug)]
struct Store {
    addr: u64,
    bytes: Vec<u8>,
    flushed: bool,
}

impl Store {
    fn touches(&self, addr: u64, size: u64) -> bool {
        self.addr + self.bytes.len() as u64 > addr && self.addr < addr + size
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Collecting {
    Init,
    Dirty,
    Flush,
}

struct File {
    name: String,
    base: u64,
    size: u64,
}

/// What a replay leaves.
#[derive(Debug, Default)]
pub struct Replayed {
    /// Bytes of each file that were stored to and persisted.
    pub files: HashMap<String, HashMap<u64, u8>>,
    /// Fences at which something was replayed.
    pub barriers: usize,
    /// Markers, in order.
    pub markers: Vec<String>,
}

fn int(text: Option<&&str>) -> Result<u64, String> {
    let text = text.ok_or("a field is missing")?;
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| format!("invalid literal for int(): {text:?}"))
}

/// Replays the log in program order.
pub fn replay(log: &str) -> Result<Replayed, String> {
    let elements: Vec<&str> = log.split('|').collect();
    let (mut start, mut stop) = (0, 0);
    for (at, element) in elements.iter().enumerate() {
        if element.contains("START") {
            start = at;
        } else if element.contains("STOP") {
            stop = at;
        }
    }
    let mut replayed = Replayed::default();
    let mut files: Vec<File> = Vec::new();
    let mut sections = vec!["START".to_owned()];
    let mut stores: Vec<Store> = Vec::new();
    let mut state = Collecting::Init;
    for element in elements.get(start + 1..stop).unwrap_or(&[]) {
        let fields: Vec<&str> = element.split(';').collect();
        match fields[0].to_lowercase().as_str() {
            "store" => {
                let size = int(fields.get(3))?;
                let value = int(fields.get(2))?;
                if size < 8 && value >> (8 * size) != 0 {
                    return Err(format!("{element}: int too big to convert"));
                }
                let mut bytes = value.to_le_bytes().to_vec();
                bytes.resize(size as usize, 0);
                let addr = int(fields.get(1))?;
                let flushed = false;
                stores.push(Store {
                    addr,
                    bytes,
                    flushed,
                });
                if state == Collecting::Init {
                    state = Collecting::Dirty;
                }
            }
            "flush" => {
                let (addr, size) = (int(fields.get(1))?, int(fields.get(2))?);
                for store in stores.iter_mut().filter(|store| store.touches(addr, size)) {
                    store.flushed = true;
                }
                state = Collecting::Flush;
            }
            "fence" if state == Collecting::Flush => {
                for store in stores.iter().filter(|store| store.flushed) {
                    let homes: Vec<&File> = files
                        .iter()
                        .filter(|file| store.touches(file.base, file.size))
                        .collect();
                    if homes.is_empty() {
                        return Err(format!("No suitable file found for store {store:?}"));
                    }
                    if homes.len() > 1 {
                        return Err(format!("{store:?} is done in {} files", homes.len()));
                    }
                    let image = replayed.files.entry(homes[0].name.clone()).or_default();
                    for (at, &byte) in (store.addr - homes[0].base..).zip(&store.bytes) {
                        image.insert(at, byte);
                    }
                }
                replayed.barriers += 1;
                stores.retain(|store| !store.flushed);
                state = Collecting::Init;
            }
            "fence" => {}
            "register_file" => {
                let (base, size) = (int(fields.get(2))?, int(fields.get(3))?);
                int(fields.get(4))?;
                if !files.iter().any(|f| f.base == base && f.size == size) {
                    let name = fields[1].to_owned();
                    files.push(File { name, base, size });
                }
            }
            "rangeable" => return Err(format!("{element}: no factory")),
            _ => {
                let marker = fields[0];
                replayed.markers.push(marker.to_owned());
                if let Some(name) = marker.strip_suffix(".BEGIN") {
                    sections.push(name.to_owned());
                } else if let Some(name) = marker.strip_suffix(".END") {
                    let top = sections.last().map_or("", String::as_str);
                    if top != name {
                        return Err(format!("Cannot cross markers: {top}, {name}"));
                    }
                    sections.pop();
                } else {
                    return Err(format!("Incorrect marker format {marker}"));
                }
            }
        }
    }
    Ok(replayed)
}
