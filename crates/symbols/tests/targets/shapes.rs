// As shapes.c, for what a compiler does that does not optimise and has copies of its own in the
// frame.
#![allow(dead_code)]

#[repr(C)]
pub struct Slot {
    key: u64,
    value: u64,
}
#[repr(C)]
pub struct Root {
    count: u64,
    slots: [Slot; 16],
}

impl Root {
    #[inline(never)]
    #[unsafe(no_mangle)]
    fn member(&mut self) {
        self.count = 7;
    }
    #[inline(never)]
    #[unsafe(no_mangle)]
    fn element(&mut self, key: u64) {
        self.slots[9].key = key;
    }
    #[inline(never)]
    #[unsafe(no_mangle)]
    fn element_by_variable(&mut self, index: usize, key: u64) {
        self.slots[index].key = key;
    }
}

// One value in two variables: neither is its name for certain.
#[inline(never)]
#[unsafe(no_mangle)]
fn twice(root: &mut Root) {
    let other = root;
    other.count = 8;
}

// It may be either.
#[inline(never)]
#[unsafe(no_mangle)]
fn either<'a>(root: &'a mut Root, other: &'a mut Root, which: bool) {
    let chosen = if which { root } else { other };
    chosen.count = 10;
}

// What is taken the address of may change.
#[inline(never)]
#[unsafe(no_mangle)]
fn stale<'a>(mut root: &'a mut Root, other: &'a mut Root) {
    change(&mut root, other);
    root.count = 9;
}

#[inline(never)]
fn change<'a>(root: &mut &'a mut Root, other: &'a mut Root) {
    *root = other;
}

fn main() {
    let slot = || Slot { key: 0, value: 0 };
    let root = || Root { count: 0, slots: [(); 16].map(|()| slot()) };
    let (mut a, mut b) = (root(), root());
    a.member();
    a.element(3);
    a.element_by_variable(4, 5);
    twice(&mut a);
    either(&mut a, &mut b, true);
    stale(&mut a, &mut b);
}
