//! What the tests share: a processor to execute on, and instructions of every opcode.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod forms;
pub mod machine;
