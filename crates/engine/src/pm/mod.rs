pub mod context_cache; pub mod irregular; pub mod site;
use crate::context::ThreadContext;
use crate::asm::*;
use crate::sys;
pub enum FaultAnswer { Retry, Program { addr: u64 } }
pub fn init_thread(_c: &mut ThreadContext) {}
pub fn init_process(_c: &mut ThreadContext, _p: u32) {}
pub fn readable_alias(a: u64) -> u64 { a }
pub fn log_slow(_c: &mut ThreadContext, _s: &'static site::Site) {}
pub fn kernel_wrote(_a: u64, _n: u64) {}
pub fn fault_in_site(_c: &mut ThreadContext, _s: &'static site::Site, _u: &mut crate::signal::UContext) {}
pub fn fault(_c: &mut ThreadContext, _pc: u64, addr: u64, _sig: i32, _site: bool, _dead: bool) -> FaultAnswer { FaultAnswer::Program { addr } }
pub fn flush_before_death(_s: i32) {}
pub fn going_parallel() {}
pub fn thread_created(_c: &mut ThreadContext, _n: &mut ThreadContext, _t: bool) {}
pub fn thread_started(_c: &mut ThreadContext) {}
pub fn lock_for_fork() {}
pub fn forked_child(_c: &mut ThreadContext) {}
pub fn thread_exits(_c: &mut ThreadContext) {}
pub fn process_execs(_c: &mut ThreadContext) {}
pub fn exec_failed(_c: &mut ThreadContext) {}
pub fn process_exits(_c: &mut ThreadContext, _s: i32) {}
pub fn with_prepared(ctx: &mut ThreadContext, n: u64, a: &[u64; 6], f: impl FnOnce(&mut ThreadContext, &[u64; 7]) -> Option<i64>) -> Option<i64> { f(ctx, &[n, a[0], a[1], a[2], a[3], a[4], a[5]]) }
pub fn is_plain_syscall(_n: u64) -> bool { true }
pub fn syscall(_c: &mut ThreadContext, _n: u64, _a: &[u64; 6]) -> Option<i64> { None }
fn raw(n: u64, a: &[u64; 6]) -> Option<i64> { match unsafe { program_syscall(&[n, a[0], a[1], a[2], a[3], a[4], a[5]]) } { Outcome::Done(r) => Some(r), Outcome::Interrupted => None } }
pub fn mmap(_c: &mut ThreadContext, a: &[u64; 6]) -> Option<i64> { raw(sys::nr::MMAP, a) }
pub fn memory(_c: &mut ThreadContext, n: u64, a: &[u64; 6]) -> Option<i64> { raw(n, a) }
pub fn code_mapped(_c: &mut ThreadContext, _s: u64, _l: u64, _a: &[u64; 6]) {}
pub fn client_request(_c: &mut ThreadContext, _b: &[u64; 6]) -> Option<u64> { None }
pub fn record_load(_c: &mut ThreadContext, _a: u64, _n: u32) {}
