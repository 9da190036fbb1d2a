use crate::context::ThreadContext;
pub struct State;
pub fn begin(_c: &mut ThreadContext, _s: &'static super::site::Site) {}
pub fn end(_c: &mut ThreadContext, _s: &'static super::site::Site) {}
