//! What lies at an offset of a type.

use gimli::{AttributeValue, DebuggingInformationEntry, UnitOffset};

use crate::elf::{Slice, Unit};

type Entry<'data> = DebuggingInformationEntry<Slice<'data>>;

/// A type without names for it, `const` and the like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A number, a character, an enumeration: so many bytes.
    Number(u64),
    /// A pointer, to this type if that is known.
    Pointer(Option<UnitOffset>),
    /// A structure or a class.
    Struct(UnitOffset),
    Union(UnitOffset),
    /// Of how many elements, as far as that is known; 0 and nothing are both without an end.
    Array {
        element: UnitOffset,
        count: u64,
    },
}

/// A part of the way to a member.
pub(super) enum Step {
    Member(String),
    /// An element; `None` if it is not known which.
    Index(Option<String>),
}

/// The way to a member, and what is there.
pub(super) struct Path {
    pub steps: Vec<Step>,
    pub shape: Shape,
}

/// An index: how far apart the elements are, and what it is called.
type Index = (i64, Option<String>);

/// What a structure has.
struct Member {
    /// Empty if it has none, or is a base class.
    name: String,
    offset: u64,
    ty: UnitOffset,
    /// It shares its bytes with others.
    is_bits: bool,
}

/// Types in types, at most so deep.
const DEPTH_MAX: usize = 32;

/// The types of a unit.
pub(super) struct Types<'u, 'data> {
    unit: Unit<'u, 'data>,
}

impl<'u, 'data> Types<'u, 'data> {
    pub(super) fn new(unit: Unit<'u, 'data>) -> Self {
        Types { unit }
    }

    /// What a type is.
    pub(super) fn shape(&self, ty: UnitOffset) -> Option<Shape> {
        let mut ty = ty;
        for _ in 0..DEPTH_MAX {
            let entry = self.unit.entry(ty).ok()?;
            let number = |entry: &Entry<'_>| {
                let size = entry.attr_value(gimli::DW_AT_byte_size)?.udata_value()?;
                Some(Shape::Number(size))
            };
            match entry.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_atomic_type
                | gimli::DW_TAG_restrict_type => ty = type_of(&entry)?,
                gimli::DW_TAG_base_type | gimli::DW_TAG_enumeration_type => return number(&entry),
                gimli::DW_TAG_pointer_type
                | gimli::DW_TAG_reference_type
                | gimli::DW_TAG_rvalue_reference_type => {
                    return Some(Shape::Pointer(type_of(&entry)));
                }
                gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => {
                    return Some(Shape::Struct(ty));
                }
                gimli::DW_TAG_union_type => return Some(Shape::Union(ty)),
                gimli::DW_TAG_array_type => return self.array(&entry),
                _ => return None,
            }
        }
        None
    }

    /// Only of one dimension.
    fn array(&self, entry: &Entry<'data>) -> Option<Shape> {
        let element = type_of(entry)?;
        let mut dimensions = Vec::new();
        let mut tree = self.unit.entries_tree(Some(entry.offset())).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Some(child) = children.next().ok()? {
            let child = child.entry();
            if child.tag() == gimli::DW_TAG_subrange_type {
                let number = |name| child.attr_value(name).and_then(|value| value.udata_value());
                let bound = number(gimli::DW_AT_upper_bound).map(|last| last.wrapping_add(1));
                dimensions.push(number(gimli::DW_AT_count).or(bound).unwrap_or(0));
            }
        }
        match dimensions[..] {
            [count] => Some(Shape::Array { element, count }),
            _ => None,
        }
    }

    /// What a pointer points to.
    pub(super) fn target(&self, shape: Shape) -> Option<Shape> {
        match shape {
            Shape::Pointer(Some(target)) => self.shape(target),
            _ => None,
        }
    }

    pub(super) fn is_number(&self, shape: Shape) -> bool {
        matches!(shape, Shape::Number(_))
    }

    /// How many bytes a type has.
    pub(super) fn size(&self, shape: Shape) -> Option<u64> {
        match shape {
            Shape::Number(size) => Some(size),
            Shape::Pointer(_) => Some(8),
            Shape::Struct(entry) | Shape::Union(entry) => {
                let entry = self.unit.entry(entry).ok()?;
                entry.attr_value(gimli::DW_AT_byte_size)?.udata_value()
            }
            Shape::Array { element, count } => self.size(self.shape(element)?)?.checked_mul(count),
        }
    }

    /// What lies at an offset from where a pointer points to, which may be the first element of an
    /// array.
    pub(super) fn behind(
        &self,
        target: Shape,
        offset: i64,
        indices: &[Index],
        size: u64,
    ) -> Option<Path> {
        let stride = i64::try_from(self.size(target)?).ok()?;
        // Where nothing says that there are several, what lies beyond the first is something else.
        if !(0..stride.max(1)).contains(&offset) && !self.is_endless(target) {
            return None;
        }
        let is_element = |(apart, _): &&Index| *apart == stride;
        match indices.iter().position(|index| is_element(&index)) {
            Some(at) if stride > 0 => {
                let mut rest = indices.to_vec();
                let (_, name) = rest.remove(at);
                let mut path = self.within(target, offset, &rest, size)?;
                path.steps.insert(0, Step::Index(name));
                Some(path)
            }
            _ => self.within(target, offset, indices, size),
        }
    }

    /// Its last member is an array without an end.
    fn is_endless(&self, shape: Shape) -> bool {
        let Shape::Struct(entry) = shape else {
            return false;
        };
        let last = self.members(entry).and_then(|members| {
            let last = members.into_iter().max_by_key(|member| member.offset)?;
            self.shape(last.ty)
        });
        matches!(last, Some(Shape::Array { count: 0, .. }))
    }

    /// What lies at an offset of something of a type, so many bytes.
    pub(super) fn within(
        &self,
        shape: Shape,
        offset: i64,
        indices: &[Index],
        size: u64,
    ) -> Option<Path> {
        self.find(shape, u64::try_from(offset).ok()?, indices, size, 0)
    }

    fn find(
        &self,
        shape: Shape,
        offset: u64,
        indices: &[Index],
        size: u64,
        depth: usize,
    ) -> Option<Path> {
        if depth > DEPTH_MAX {
            return None;
        }
        if offset == 0 && indices.is_empty() && self.size(shape) == Some(size) {
            // The only member of a structure is what is meant.
            let inner = match shape {
                Shape::Struct(entry) => self.member(entry, 0, &[], size, depth),
                _ => None,
            };
            let steps = Vec::new();
            return Some(inner.unwrap_or(Path { steps, shape }));
        }
        match shape {
            Shape::Number(_) | Shape::Pointer(_) => None,
            Shape::Array { element, count } => {
                let element = self.shape(element)?;
                let stride = self.size(element).filter(|stride| *stride > 0)?;
                let number = offset / stride;
                let is_own = |index: &Index| u64::try_from(index.0) == Ok(stride);
                let (step, rest) = match indices.iter().position(is_own) {
                    // `a[i + 2]` and an index into what lies before `a` look the same.
                    Some(at) if number == 0 => {
                        let mut rest = indices.to_vec();
                        let (_, name) = rest.remove(at);
                        (Step::Index(name), rest)
                    }
                    Some(_) => return None,
                    None if count == 0 || number < count => {
                        (Step::Index(Some(number.to_string())), indices.to_vec())
                    }
                    None => return None,
                };
                let mut path = self.find(element, offset % stride, &rest, size, depth + 1)?;
                path.steps.insert(0, step);
                Some(path)
            }
            Shape::Struct(entry) => self
                .member(entry, offset, indices, size, depth)
                .or_else(|| self.several(shape, entry, offset, indices, size)),
            Shape::Union(entry) => {
                let members = self.members(entry)?;
                let mut all = members
                    .iter()
                    .filter_map(|member| self.into(member, offset, indices, size, depth));
                let found = all.next()?;
                all.next().is_none().then_some(found)
            }
        }
    }

    /// The one member that has all of it.
    fn member(
        &self,
        entry: UnitOffset,
        offset: u64,
        indices: &[Index],
        size: u64,
        depth: usize,
    ) -> Option<Path> {
        let members = self.members(entry)?;
        let mut all = members
            .iter()
            .filter_map(|member| self.into(member, offset, indices, size, depth));
        let found = all.next()?;
        all.next().is_none().then_some(found)
    }

    fn into(
        &self,
        member: &Member,
        offset: u64,
        indices: &[Index],
        size: u64,
        depth: usize,
    ) -> Option<Path> {
        if member.is_bits {
            return None;
        }
        let inside = offset.checked_sub(member.offset)?;
        let shape = self.shape(member.ty)?;
        let is_endless = matches!(shape, Shape::Array { count: 0, .. });
        if !is_endless && inside >= self.size(shape)? {
            return None;
        }
        let mut path = self.find(shape, inside, indices, size, depth + 1)?;
        if !member.name.is_empty() {
            path.steps.insert(0, Step::Member(member.name.clone()));
        }
        // All of something without a name is not all of what it is in.
        (!path.steps.is_empty()).then_some(path)
    }

    /// Several members that are all covered, none in part: `{key, value}`.
    fn several(
        &self,
        shape: Shape,
        entry: UnitOffset,
        offset: u64,
        indices: &[Index],
        size: u64,
    ) -> Option<Path> {
        /// More are not listed.
        const SHOWN: usize = 4;
        if !indices.is_empty() {
            return None;
        }
        let end = offset.checked_add(size)?;
        let mut names = Vec::new();
        for member in self.members(entry)? {
            let member_end = member
                .offset
                .checked_add(self.size(self.shape(member.ty)?)?)?;
            if member.is_bits {
                return None;
            }
            if member_end <= offset || end <= member.offset {
                continue;
            }
            if member.offset < offset || end < member_end || member.name.is_empty() {
                return None;
            }
            names.push(member.name);
        }
        if names.len() < 2 || end > self.size(shape)? {
            return None;
        }
        if names.len() > SHOWN {
            let last = names.pop()?;
            names.truncate(SHOWN - 2);
            names.extend(["…".to_owned(), last]);
        }
        let steps = vec![Step::Member(format!("{{{}}}", names.join(", ")))];
        Some(Path { steps, shape })
    }

    /// All members; nothing if one of them is not understood.
    fn members(&self, entry: UnitOffset) -> Option<Vec<Member>> {
        let mut members = Vec::new();
        let mut tree = self.unit.entries_tree(Some(entry)).ok()?;
        let mut children = tree.root().ok()?.children();
        while let Some(child) = children.next().ok()? {
            let child = child.entry();
            let is_base = child.tag() == gimli::DW_TAG_inheritance;
            if child.tag() == gimli::DW_TAG_variant_part {
                return None;
            }
            if !is_base && child.tag() != gimli::DW_TAG_member {
                continue;
            }
            // Static members lie elsewhere.
            if child.attr(gimli::DW_AT_external).is_some() {
                continue;
            }
            let offset = match child.attr_value(gimli::DW_AT_data_member_location) {
                Some(value) => value.udata_value()?,
                None => 0,
            };
            let name = match child.attr_value(gimli::DW_AT_name) {
                Some(name) if !is_base => {
                    let name = self.unit.attr_string(name).ok()?;
                    String::from_utf8_lossy(name.slice()).into_owned()
                }
                _ => String::new(),
            };
            members.push(Member {
                name,
                offset,
                ty: type_of(child)?,
                is_bits: child.attr(gimli::DW_AT_bit_size).is_some(),
            });
        }
        Some(members)
    }
}

fn type_of(entry: &Entry<'_>) -> Option<UnitOffset> {
    match entry.attr_value(gimli::DW_AT_type)? {
        AttributeValue::UnitRef(ty) => Some(ty),
        _ => None,
    }
}
