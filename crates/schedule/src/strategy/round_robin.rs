//! Everybody in turn, each for some points (`depth` of the plan).

use super::choice::{Choice, Plan, Random, Strategy};

#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct RoundRobin {
    /// Points that whoever has the turn has had.
    had: u32,
}

impl Strategy for RoundRobin {
    fn choose(&mut self, plan: &Plan, choice: &Choice<'_>, _: &mut Random) -> usize {
        self.had += 1;
        if choice.me == Some(choice.usual) && self.had < plan.depth.max(1) {
            return choice.usual;
        }
        self.had = 0;
        let me = choice.me.unwrap_or(0);
        let next = choice.able().find(|at| *at > me);
        next.or(choice.able().next()).unwrap_or(choice.usual)
    }
}
