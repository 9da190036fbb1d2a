//! The variables of a function, and where each is at an instruction.

use gimli::{AttributeValue, DebuggingInformationEntry, Expression, Operation, UnitOffset};

use crate::elf::{Slice, Unit};

type Entry<'data> = DebuggingInformationEntry<Slice<'data>>;

/// Where a variable is. Registers have DWARF's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// Its value is that of a register and a number.
    Register(u8, i64),
    /// It lies in memory, so far from where a register points to.
    Memory(u8, i64),
    /// It lies at an address of the module.
    Global(u64),
}

pub(super) struct Variable {
    pub name: String,
    pub ty: UnitOffset,
    pub home: Home,
}

/// What a unit has, by address.
pub(crate) struct UnitIndex {
    /// Start, end, entry; by start.
    functions: Vec<(u64, u64, UnitOffset)>,
    globals: Vec<UnitOffset>,
    arrow: &'static str,
}

/// A unit with more variables outside of functions is not searched for them.
const GLOBALS_MAX: usize = 4096;

impl UnitIndex {
    /// Reads all entries of a unit once.
    pub(crate) fn build(unit: Unit<'_, '_>) -> UnitIndex {
        let mut index = UnitIndex {
            functions: Vec::new(),
            globals: Vec::new(),
            arrow: "->",
        };
        let mut entries = unit.entries();
        let mut function = None;
        while let Ok(Some(entry)) = entries.next_dfs() {
            if function.is_some_and(|depth| entry.depth() <= depth) {
                function = None;
            }
            match entry.tag() {
                gimli::DW_TAG_compile_unit => {
                    let language = entry.attr_value(gimli::DW_AT_language);
                    if let Some(AttributeValue::Language(gimli::DW_LANG_Rust)) = language {
                        index.arrow = ".";
                    }
                }
                gimli::DW_TAG_subprogram => {
                    function.get_or_insert(entry.depth());
                    let ranges = ranges_of(unit, entry).unwrap_or_default();
                    let whole = ranges
                        .into_iter()
                        .map(|(start, end)| (start, end, entry.offset()));
                    index.functions.extend(whole);
                }
                gimli::DW_TAG_variable
                    if function.is_none()
                        && index.globals.len() < GLOBALS_MAX
                        && entry.attr(gimli::DW_AT_location).is_some() =>
                {
                    index.globals.push(entry.offset());
                }
                _ => {}
            }
        }
        index.functions.sort_by_key(|(start, ..)| *start);
        index
    }

    /// The function that has code at `pc`.
    pub(super) fn function(&self, pc: u64) -> Option<UnitOffset> {
        let after = self.functions.partition_point(|(start, ..)| *start <= pc);
        let (_, end, entry) = self.functions[..after].last()?;
        (pc < *end).then_some(*entry)
    }

    /// The variables outside of functions.
    pub(super) fn globals(&self, unit: Unit<'_, '_>) -> Vec<Variable> {
        let all = self.globals.iter();
        all.filter_map(|offset| {
            let entry = unit.entry(*offset).ok()?;
            let expression = entry.attr_value(gimli::DW_AT_location)?.exprloc_value()?;
            let home = home(unit, expression, None)?;
            variable(unit, &entry, home)
        })
        .collect()
    }

    /// How the unit's language writes a member of what a pointer points to.
    pub(super) fn arrow(&self) -> &'static str {
        self.arrow
    }
}

/// The code of a function.
pub(super) fn ranges(unit: Unit<'_, '_>, function: UnitOffset) -> Option<Vec<(u64, u64)>> {
    ranges_of(unit, &unit.entry(function).ok()?)
}

fn ranges_of<'data>(unit: Unit<'_, 'data>, entry: &Entry<'data>) -> Option<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    let mut all = unit.die_ranges(entry).ok()?;
    while let Some(range) = all.next().ok()? {
        if range.begin < range.end {
            ranges.push((range.begin, range.end));
        }
    }
    (!ranges.is_empty()).then_some(ranges)
}

/// The variables and parameters of a function that have a home at `pc`, those of inner scopes last.
pub(super) fn at(
    unit: Unit<'_, '_>,
    function: UnitOffset,
    pc: u64,
    cfa: impl FnOnce() -> Option<(u8, i64)>,
) -> Option<Vec<Variable>> {
    let mut entries = unit.entries_at_offset(function).ok()?;
    let own = entries.next_dfs().ok()??;
    let depth = own.depth();
    let frame = frame_base(unit, own, cfa);
    let mut found = Vec::new();
    // Scopes that `pc` does not lie in.
    let mut left_out = None;
    while let Some(entry) = entries.next_dfs().ok()? {
        if entry.depth() <= depth {
            break;
        }
        if left_out.is_some_and(|scope| entry.depth() > scope) {
            continue;
        }
        left_out = None;
        match entry.tag() {
            gimli::DW_TAG_lexical_block | gimli::DW_TAG_inlined_subroutine => {
                let ranges = ranges_of(unit, entry).unwrap_or_default();
                let covers = |(start, end): &(u64, u64)| *start <= pc && pc < *end;
                if !ranges.is_empty() && !ranges.iter().any(covers) {
                    left_out = Some(entry.depth());
                }
            }
            gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter => {
                let here = location(unit, entry, pc).and_then(|e| home(unit, e, frame));
                found.extend(here.and_then(|home| variable(unit, entry, home)));
            }
            _ => left_out = Some(entry.depth()),
        }
    }
    Some(found)
}

/// A register, and how far from it the frame's base lies.
fn frame_base<'data>(
    unit: Unit<'_, 'data>,
    function: &Entry<'data>,
    cfa: impl FnOnce() -> Option<(u8, i64)>,
) -> Option<(u8, i64)> {
    let expression = function
        .attr_value(gimli::DW_AT_frame_base)?
        .exprloc_value()?;
    match operations(unit, expression)?[..] {
        [Operation::CallFrameCFA] => cfa(),
        [Operation::Register { register }] => Some((general(register)?, 0)),
        _ => None,
    }
}

/// The one expression that says where a variable is at `pc`.
fn location<'data>(
    unit: Unit<'_, 'data>,
    entry: &Entry<'data>,
    pc: u64,
) -> Option<Expression<Slice<'data>>> {
    let value = entry.attr_value(gimli::DW_AT_location)?;
    if let Some(expression) = value.exprloc_value() {
        return Some(expression);
    }
    let mut list = unit.attr_locations(value).ok()??;
    let mut found: Option<Expression<Slice<'data>>> = None;
    while let Some(item) = list.next().ok()? {
        if item.range.begin <= pc && pc < item.range.end {
            // Two that differ say nothing for certain.
            if found.is_some_and(|known| known.0.slice() != item.data.0.slice()) {
                return None;
            }
            found = Some(item.data);
        }
    }
    found
}

fn operations<'data>(
    unit: Unit<'_, 'data>,
    expression: Expression<Slice<'data>>,
) -> Option<Vec<Operation<Slice<'data>>>> {
    /// The longest that is understood.
    const MAX: usize = 2;
    let mut found = Vec::new();
    let mut all = expression.operations(unit.encoding());
    while let Some(operation) = all.next().ok()? {
        if found.len() == MAX {
            return None;
        }
        found.push(operation);
    }
    Some(found)
}

fn home<'data>(
    unit: Unit<'_, 'data>,
    expression: Expression<Slice<'data>>,
    frame: Option<(u8, i64)>,
) -> Option<Home> {
    let generic = UnitOffset(0);
    match operations(unit, expression)?[..] {
        [Operation::Register { register }] => Some(Home::Register(general(register)?, 0)),
        [
            Operation::RegisterOffset {
                register,
                offset,
                base_type,
            },
            Operation::StackValue,
        ] if base_type == generic => Some(Home::Register(general(register)?, offset)),
        [
            Operation::RegisterOffset {
                register,
                offset,
                base_type,
            },
        ] if base_type == generic => Some(Home::Memory(general(register)?, offset)),
        [Operation::FrameOffset { offset }] => {
            let (register, base) = frame?;
            Some(Home::Memory(register, base.checked_add(offset)?))
        }
        [Operation::Address { address }] => Some(Home::Global(address)),
        [Operation::AddressIndex { index }] => Some(Home::Global(unit.address(index).ok()?)),
        _ => None,
    }
}

fn general(register: gimli::Register) -> Option<u8> {
    (register.0 < 16).then_some(register.0 as u8)
}

/// Entries refer to where they were declared, a few times at most.
const ORIGINS_MAX: usize = 4;

fn variable<'data>(unit: Unit<'_, 'data>, entry: &Entry<'data>, home: Home) -> Option<Variable> {
    let name = inherited(unit, entry, gimli::DW_AT_name)?;
    let name = unit.attr_string(name).ok()?;
    let AttributeValue::UnitRef(ty) = inherited(unit, entry, gimli::DW_AT_type)? else {
        return None;
    };
    Some(Variable {
        name: String::from_utf8_lossy(name.slice()).into_owned(),
        ty,
        home,
    })
}

/// An attribute of an entry, or of what it is an instance of.
fn inherited<'data>(
    unit: Unit<'_, 'data>,
    entry: &Entry<'data>,
    attribute: gimli::DwAt,
) -> Option<AttributeValue<Slice<'data>>> {
    let mut entry = entry.clone();
    for _ in 0..ORIGINS_MAX {
        if let Some(value) = entry.attr_value(attribute) {
            return Some(value);
        }
        let origin = entry
            .attr_value(gimli::DW_AT_abstract_origin)
            .or_else(|| entry.attr_value(gimli::DW_AT_specification))?;
        let AttributeValue::UnitRef(origin) = origin else {
            return None;
        };
        entry = unit.entry(origin).ok()?;
    }
    None
}
