//! The library's side of the border: entry points around a [`Rule`].
//!
//! **Guarantee.** No panic leaves an entry point: it becomes a failure of the call, with message
//! and place. The tool's tables are read only after their sizes have been checked.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::abi::{
    FAILED, HostTable, MAGIC, NEEDS_LOADS, NEEDS_VALUES, OK, PluginTable, RawBytes, RawEvent,
    RawInfo, RawStatus, SEVERITY_CORRECTNESS, SEVERITY_PERFORMANCE, VERSION,
};
use crate::pm::{Link, Pm};
use crate::report::Reporter;
use crate::{Info, Rule, Severity};

/// What [`export_rule!`](crate::export_rule) exports.
pub const fn table<R: Rule>() -> PluginTable {
    PluginTable {
        magic: MAGIC,
        version: VERSION,
        size: size_of::<PluginTable>() as u32,
        create: Some(create::<R>),
        event: Some(event::<R>),
        end: Some(end::<R>),
        destroy: Some(destroy::<R>),
    }
}

struct Instance<R> {
    rule: R,
    /// The tool reads its strings as long as the instance lives.
    info: Info,
}

unsafe extern "C" fn create<R: Rule>(
    host: *const HostTable,
    call: *mut c_void,
    options: RawBytes,
    info: *mut RawInfo,
) -> *mut c_void {
    // SAFETY: the tool passes a valid table, whose head is the same in every version.
    let (version, size, event_size, status_size) = unsafe {
        (
            (*host).version,
            (*host).size,
            (*host).event_size,
            (*host).status_size,
        )
    };
    if version != VERSION {
        // The tool looks at our version before it calls us. If it does not, there is nobody to
        // tell: the place of `fail` is known for our version only.
        return std::ptr::null_mut();
    }
    // SAFETY: from here on the table is of our version, and `fail` is in every table of our
    // version.
    let link = unsafe { Link::new(&*host, call) };
    // SAFETY: the tool sets the size before the call.
    let info_size = unsafe { (*info).size };
    if (size as usize) < size_of::<HostTable>()
        || (event_size as usize) < size_of::<RawEvent>()
        || (status_size as usize) < size_of::<RawStatus>()
        || (info_size as usize) < size_of::<RawInfo>()
    {
        link.fail("the rule was built for a newer brownout; update brownout, or rebuild the rule with the brownout-rule that belongs to it");
        return std::ptr::null_mut();
    }
    // SAFETY: the tool passes valid options for the time of the call.
    let options = unsafe { options.to_text() };
    let made = guarded(link, || {
        let rule = R::new(&options)?;
        let info = rule.info();
        Ok(Box::new(Instance { rule, info }))
    });
    let Some(instance) = made else {
        return std::ptr::null_mut();
    };
    let about = &instance.info;
    // SAFETY: the tool passes a place for it that is long enough, as checked.
    unsafe {
        (*info).severity = match about.severity {
            Severity::Correctness => SEVERITY_CORRECTNESS,
            Severity::Performance => SEVERITY_PERFORMANCE,
        };
        (*info).needs = if about.needs_values { NEEDS_VALUES } else { 0 }
            | if about.needs_loads { NEEDS_LOADS } else { 0 };
        (*info).kinds = about.kinds;
        (*info).id = RawBytes::new(about.id.as_bytes());
        (*info).summary = RawBytes::new(about.summary.as_bytes());
    }
    Box::into_raw(instance).cast()
}

unsafe extern "C" fn event<R: Rule>(
    instance: *mut c_void,
    host: *const HostTable,
    call: *mut c_void,
    event: *const RawEvent,
) -> u32 {
    // SAFETY: `instance` is what `create::<R>` returned, and calls come one at a time; the tool
    // keeps host and call valid for this one.
    let (instance, link) = unsafe {
        (
            &mut *instance.cast::<Instance<R>>(),
            Link::new(&*host, call),
        )
    };
    // SAFETY: the tool keeps the event valid for this call, and it is as long as we think, as
    // checked by `create`.
    let event = unsafe { (*event).event() };
    let done = guarded(link, || {
        let mut reporter = Reporter::new(link, Some(&event));
        instance.rule.event(&event, &Pm::new(link), &mut reporter);
        Ok(())
    });
    if done.is_some() { OK } else { FAILED }
}

unsafe extern "C" fn end<R: Rule>(
    instance: *mut c_void,
    host: *const HostTable,
    call: *mut c_void,
) -> u32 {
    // SAFETY: as in `event`.
    let (instance, link) = unsafe {
        (
            &mut *instance.cast::<Instance<R>>(),
            Link::new(&*host, call),
        )
    };
    let done = guarded(link, || {
        let mut reporter = Reporter::new(link, None);
        instance.rule.end(&Pm::new(link), &mut reporter);
        Ok(())
    });
    if done.is_some() { OK } else { FAILED }
}

unsafe extern "C" fn destroy<R: Rule>(instance: *mut c_void) {
    // SAFETY: `instance` is what `create::<R>` returned, and this is the last call.
    let instance = unsafe { Box::from_raw(instance.cast::<Instance<R>>()) };
    // Nobody is left to hear of a panic in a destructor.
    if let Err(payload) = quietly(|| drop(instance)) {
        std::mem::forget(payload);
    }
}

/// Runs the author's code; tells the tool if it fails or panics.
fn guarded<T>(link: Link<'_>, code: impl FnOnce() -> Result<T, String>) -> Option<T> {
    match quietly(code) {
        Ok(Ok(value)) => return Some(value),
        Ok(Err(message)) => link.fail(&message),
        Err(payload) => {
            let message = PANIC
                .take()
                .unwrap_or_else(|| "of unknown cause".to_string());
            link.fail(&format!("the rule panicked: {message}"));
            // A payload's own destructor might panic too.
            std::mem::forget(payload);
        }
    }
    None
}

thread_local! {
    static IN_RULE: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Catches panics, and keeps their message and place in `PANIC` instead of printing them: the tool
/// reports them.
fn quietly<T>(code: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    static HOOK: Once = Once::new();
    // A library has its own copy of the standard library, so this hook is not the tool's.
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IN_RULE.try_with(Cell::get).unwrap_or(false) {
                return before(info);
            }
            let payload = info.payload();
            let text = payload
                .downcast_ref::<&str>()
                .copied()
                .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
                .unwrap_or("of unknown cause");
            let text = match info.location() {
                Some(at) => format!("{text} ({}:{})", at.file(), at.line()),
                None => text.to_string(),
            };
            let _ = PANIC.try_with(|panic| panic.replace(Some(text)));
        }));
    });
    let outside = IN_RULE.replace(true);
    // The tool never uses an instance again that panicked, except to destroy it.
    let result = catch_unwind(AssertUnwindSafe(code));
    IN_RULE.set(outside);
    result
}
