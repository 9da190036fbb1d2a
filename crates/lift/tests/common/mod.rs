//! What the tests of this crate share.

#![allow(
    dead_code,
    reason = "each test is a program of its own, and uses some of it"
)]

pub mod forms;
pub mod native;
pub mod plain;
pub mod state;
