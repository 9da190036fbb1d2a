//! Where expressions are kept: each once.
//!
//! # Guarantee
//!
//! An operand has a smaller index than what it is an operand of, so that indices in ascending order
//! are an order of evaluation. Nothing that lies in a pool ever changes.
//!
//! # Cost
//!
//! 20 bytes an expression, and as much again, or twice, in the table that finds it. The inputs that
//! an expression depends on are kept with it as long as they are few; for others they are found by
//! a walk when somebody asks.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::op::{Op, mask};

/// A hash-consed expression: an index into its [`Pool`]. Its width is 1 to 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Expr(pub(crate) u32);

/// An operation, its width, and its operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Node {
    pub(crate) op: Op,
    pub(crate) bits: u8,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u32,
}

/// A set of inputs is kept with an expression if it has no more than so many elements.
const SMALL_SET: usize = 12;

/// In place of a set that is not kept.
const MANY: u32 = u32::MAX;

/// Pools are told apart by number, because a cache of one pool's expressions is wrong for another.
static POOLS: AtomicU64 = AtomicU64::new(0);

/// All expressions of a run.
pub struct Pool {
    pub(crate) number: u64,
    nodes: Vec<Node>,
    /// For each node, its inputs as an index into `sets`, or [`MANY`].
    /// By expression, see [`Pool::shape`].
    shapes: Vec<u64>,
    set_of: Vec<u32>,
    /// What was asked for, to what came of it. Nodes that a rule has replaced are here, too.
    interned: FxHashMap<Node, Expr>,
    wide: Vec<u128>,
    wide_index: FxHashMap<u128, u32>,
    sets: Vec<Box<[u32]>>,
    set_index: FxHashMap<Box<[u32]>, u32>,
    unions: FxHashMap<(u32, u32), u32>,
    /// Inputs of those expressions whose sets are not kept, and which somebody asked for.
    large: FxHashMap<Expr, Box<[u32]>>,
    /// How deep the rules are within each other.
    pub(crate) depth: u32,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool::new()
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// An empty pool.
    pub fn new() -> Pool {
        let empty: Box<[u32]> = Box::default();
        Pool {
            number: POOLS.fetch_add(1, Ordering::Relaxed),
            nodes: Vec::new(),
            set_of: Vec::new(),
            shapes: Vec::new(),
            interned: FxHashMap::default(),
            wide: Vec::new(),
            wide_index: FxHashMap::default(),
            sets: vec![empty.clone()],
            set_index: FxHashMap::from_iter([(empty, 0)]),
            unions: FxHashMap::default(),
            large: FxHashMap::default(),
            depth: 0,
        }
    }

    /// How many different expressions there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The constant of this width; the value is truncated to it.
    pub fn constant(&mut self, bits: u32, value: u128) -> Expr {
        assert!((1..=128).contains(&bits), "a width of {bits} bits");
        let value = value & mask(bits);
        let node = if value >> 96 == 0 {
            Node {
                op: Op::Const,
                bits: bits as u8,
                a: value as u32,
                b: (value >> 32) as u32,
                c: (value >> 64) as u32,
            }
        } else {
            let next = self.wide.len() as u32;
            let index = *self.wide_index.entry(value).or_insert(next);
            if index == next {
                self.wide.push(value);
            }
            Node {
                op: Op::Wide,
                bits: bits as u8,
                a: index,
                b: 0,
                c: 0,
            }
        };
        self.intern(node)
    }

    /// Byte `index` of the input, which is 8 bits wide.
    pub fn input(&mut self, index: u32) -> Expr {
        self.intern(Node {
            op: Op::Input,
            bits: 8,
            a: index,
            b: 0,
            c: 0,
        })
    }

    /// The width.
    pub fn bits(&self, e: Expr) -> u32 {
        self.node(e).bits.into()
    }

    /// The value, if it is a constant.
    pub fn as_constant(&self, e: Expr) -> Option<u128> {
        self.value_of(self.node(e))
    }

    /// The input bytes that it may depend on, in ascending order.
    pub fn inputs(&mut self, e: Expr) -> &[u32] {
        match self.set_of[e.0 as usize] {
            MANY => {
                if !self.large.contains_key(&e) {
                    let set = self.gather(e);
                    self.large.insert(e, set);
                }
                &self.large[&e]
            }
            set => &self.sets[set as usize],
        }
    }

    /// An expression whose lowest bit that is 1 is at the same place (if there is one), and whose
    /// bits are simpler: that of a sum or a difference depend on each other, but the lowest bit of
    /// `a - b` is where `a` and `b` differ first.
    pub fn same_lowest(&mut self, e: Expr) -> Expr {
        let node = self.node(e);
        match node.op {
            Op::Add => {
                // Constants stand on either side.
                let (a, b) = match self.as_constant(Expr(node.a)) {
                    Some(_) => (Expr(node.b), Expr(node.a)),
                    None => (Expr(node.a), Expr(node.b)),
                };
                match self.as_constant(b) {
                    Some(_) => {
                        let negative = self.neg(b);
                        self.xor(a, negative)
                    }
                    None => e,
                }
            }
            Op::Sub => self.xor(Expr(node.a), Expr(node.b)),
            // Zeros above do not matter.
            Op::Zext => {
                let inner = self.same_lowest(Expr(node.a));
                self.zext(inner, node.bits.into())
            }
            _ => e,
        }
    }

    /// A number for what it computes from input bytes, whichever those are: two expressions that
    /// differ in the bytes alone have the same.
    pub fn shape(&self, e: Expr) -> u64 {
        self.shapes[e.0 as usize]
    }

    fn shape_of(&self, node: Node) -> u64 {
        let mut hasher = FxHasher::default();
        (node.op as u32, node.bits).hash(&mut hasher);
        let parts = [node.a, node.b, node.c];
        let operands = node.op.arity();
        for (at, part) in parts.into_iter().enumerate() {
            match node.op {
                Op::Input => {}
                Op::Wide => self.wide[node.a as usize].hash(&mut hasher),
                _ if at < operands => self.shapes[part as usize].hash(&mut hasher),
                _ => part.hash(&mut hasher),
            }
        }
        hasher.finish()
    }

    pub(crate) fn node(&self, e: Expr) -> Node {
        self.nodes[e.0 as usize]
    }

    /// The operands that are expressions.
    pub(crate) fn operands(&self, e: Expr) -> impl Iterator<Item = Expr> + use<> {
        let node = self.node(e);
        [node.a, node.b, node.c]
            .into_iter()
            .take(node.op.arity())
            .map(Expr)
    }

    pub(crate) fn value_of(&self, node: Node) -> Option<u128> {
        match node.op {
            Op::Const => {
                Some(u128::from(node.a) | u128::from(node.b) << 32 | u128::from(node.c) << 64)
            }
            Op::Wide => Some(self.wide[node.a as usize]),
            _ => None,
        }
    }

    /// What [`crate::op::apply`] wants to know beside the operands' values.
    pub(crate) fn aux(&self, node: Node) -> u32 {
        match node.op {
            Op::Const | Op::Wide | Op::Input => 0,
            Op::Extract => node.b,
            Op::Concat => self.bits(Expr(node.b)),
            _ => self.bits(Expr(node.a)),
        }
    }

    /// What was made of this node before.
    pub(crate) fn known(&self, node: &Node) -> Option<Expr> {
        self.interned.get(node).copied()
    }

    /// Notes that a rule has made `e` of this node.
    pub(crate) fn alias(&mut self, node: Node, e: Expr) {
        self.interned.insert(node, e);
    }

    /// The node as it is.
    pub(crate) fn intern(&mut self, node: Node) -> Expr {
        if let Some(e) = self.known(&node) {
            return e;
        }
        let e = Expr(u32::try_from(self.nodes.len()).expect("no more than 2^32 expressions"));
        let set = match node.op {
            Op::Input => self.set(Box::new([node.a])),
            op => [node.a, node.b, node.c][..op.arity()]
                .iter()
                .fold(0, |set, &operand| {
                    self.union(set, self.set_of[operand as usize])
                }),
        };
        let shape = self.shape_of(node);
        self.nodes.push(node);
        self.shapes.push(shape);
        self.set_of.push(set);
        self.interned.insert(node, e);
        e
    }

    fn set(&mut self, set: Box<[u32]>) -> u32 {
        let next = self.sets.len() as u32;
        if let Some(&known) = self.set_index.get(&set) {
            return known;
        }
        self.sets.push(set.clone());
        self.set_index.insert(set, next);
        next
    }

    fn union(&mut self, a: u32, b: u32) -> u32 {
        if a == b || b == 0 {
            return a;
        }
        if a == 0 {
            return b;
        }
        if a == MANY || b == MANY {
            return MANY;
        }
        let key = (a.min(b), a.max(b));
        if let Some(&known) = self.unions.get(&key) {
            return known;
        }
        let mut both = [&*self.sets[a as usize], &*self.sets[b as usize]].concat();
        both.sort_unstable();
        both.dedup();
        let set = if both.len() > SMALL_SET {
            MANY
        } else {
            self.set(both.into())
        };
        self.unions.insert(key, set);
        set
    }

    /// The inputs of an expression by a walk, which ends where sets are known.
    fn gather(&self, e: Expr) -> Box<[u32]> {
        let mut sets = FxHashSet::default();
        let mut found = FxHashSet::default();
        let mut seen = FxHashSet::from_iter([e]);
        let mut stack = vec![e];
        while let Some(e) = stack.pop() {
            match self.set_of[e.0 as usize] {
                MANY => match self.large.get(&e) {
                    Some(set) => found.extend(set.iter().copied()),
                    None => stack.extend(self.operands(e).filter(|&operand| seen.insert(operand))),
                },
                set => {
                    if sets.insert(set) {
                        found.extend(self.sets[set as usize].iter().copied());
                    }
                }
            }
        }
        let mut found: Vec<u32> = found.into_iter().collect();
        found.sort_unstable();
        found.into()
    }
}
