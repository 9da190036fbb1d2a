//! Whoever has the turn keeps it as long as it can go on and does not give way.

use super::choice::{Choice, Plan, Random, Strategy};

#[derive(Clone, Copy, Default)]
pub struct GoOn;

impl Strategy for GoOn {
    fn choose(&mut self, _: &Plan, choice: &Choice<'_>, _: &mut Random) -> usize {
        choice.usual
    }
}
