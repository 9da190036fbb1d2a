//! Expressions over input bytes, and which bytes make them true.
//!
//! ```text
//!  add, eq, ite… ──► Pool   each expression once, simplified as it is made
//!                      │
//!  path, goal ──► Solver ─┬─ slice        what shares inputs with the goal
//!                         ├─ cache        the same slice, or the model of another
//!                         ├─ enumeration  all values of one byte or two
//!                         ├─ SAT          gates, clauses, old values first
//!                         └─ external     z3, if there is one
//!                              │
//!                          Answer         which bytes to change
//! ```
//!
//! A concolic execution makes an expression of everything that depends on its input. A branch on
//! such a value is a condition of one bit. The conditions so far are the path; the opposite of the
//! next one is a goal. [`Solver::solve`] says which bytes have to change so that the program goes
//! the same way up to there, and then the other.
//!
//! # Guarantee
//!
//! 1. A simplified expression has the value of what was asked for ([`Pool::eval`]), whatever the
//!    input is.
//! 2. [`Answer::Sat`] holds: it is evaluated before it is given. [`Answer::Unsat`] is proven.
//! 3. A query ends within its budget ([`Settings`]), with [`Answer::Unknown`] if need be.
//! 4. The same queries in the same order get the same answers, as long as no time limit is met.
//!
//! # Source
//!
//! The meaning of operations is that of SMT-LIB 2.6's bit vectors, division by zero included. That
//! only those conditions matter which share inputs with the goal is from EXE (Cadar and others,
//! 2006); that earlier models are tried is from KLEE (Cadar and others, 2008).
//!
//! # Deviations
//!
//! 1. There are no arrays. What a table or memory holds at a symbolic index is for the caller to
//!    write as choices ([`Pool::ite`]), or to make concrete.
//! 2. Which model is found is not specified. It differs from the old input in as few bytes as a
//!    greedy search gets to, and those change to what people would write, if that will do.
//!
//! # Cost
//!
//! In release builds: about 10 µs for a query about a byte or two, 1 to 2 ms for a number of four
//! digits. `tests/queries.rs` measures.
//!
//! # Example
//!
//! ```
//! use brownout_solve::{Answer, Pool, Solver};
//!
//! let mut pool = Pool::new();
//! let digit = pool.input(3);
//! let is_digit = pool.within(digit, b'0'.into(), b'9'.into());
//! let seven = pool.constant(8, b'7'.into());
//! let goal = pool.ult(seven, digit);
//! let answer = Solver::default().solve(&mut pool, &[is_digit], goal, b"abc5");
//! assert_eq!(answer, Answer::Sat(vec![(3, b'8')]));
//! ```

mod blast;
mod byte_set;
mod bytes_left;
mod external;
mod gates;
mod lanes;
mod op;
mod pool;
mod program;
mod rules;
mod sat;
mod smtlib;
mod solver;

pub use bytes_left::{BytesLeft, KnownSets};
pub use external::try_solver;
pub use pool::{Expr, Pool};
pub use smtlib::to_smtlib;
pub use solver::{Answer, Settings, Solver, Statistics};
