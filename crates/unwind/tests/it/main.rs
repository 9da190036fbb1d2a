//! Tests on real images, this process's own and a small C library that the test compiles.
//!
//! What they do not check: stacks of other processes, and images made by linkers other than the
//! ones that built this machine's libraries.

mod against_gimli;
mod corrupt;
mod oracle;
mod process;
mod single_step;
mod steps;
mod walks;
