//! The tool's side of the border: loads rules and drives them.
//!
//! **Purpose.** [`Plugin::load`] takes a shared library; [`Plugin::event`] passes it an event,
//! together with [`HostServices`] that answer its questions and take its findings.
//!
//! **Guarantee.** A file that is no rule is refused before any code of it runs. Nothing of a
//! library's table is read before magic, version and size fit. What a library says (id, severity,
//! texts) is checked or made valid. A rule that fails is disabled: the failing call returns the
//! reason once, later calls do nothing. A panic of the services passes through the rule to the
//! caller.
//!
//! **Deviations.** A library stays loaded until the process ends: destructors of its thread-local
//! data may still have to run.

use std::any::Any;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, c_void};
use std::fmt;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::ptr::NonNull;

pub use crate::error::LoadError;

use crate::abi::{
    HostTable, MAGIC, NEEDS_LOADS, NEEDS_VALUES, OK, PluginTable, RawBytes, RawEvent, RawFinding,
    RawFindingEvent, RawInfo, RawStatus, SEVERITY_CORRECTNESS, SEVERITY_PERFORMANCE, VERSION,
};
use crate::event::{Event, Place, Site, ThreadId};
use crate::state::Status;
use crate::{Info, Rule, Severity};

/// What an analysis gives to rules. Questions are about the moment before the event that is being
/// passed ([`Plugin::event`]), or the end of the run ([`Plugin::end`]). A [`Place`] with a file
/// (not 0) is meant in that file; one without is meant at its address in the event's process, and
/// is nowhere at the end of the run.
pub trait HostServices {
    /// [`Pm::is_persisted`](crate::Pm::is_persisted).
    fn is_persisted(&self, place: Place) -> bool;
    /// [`Pm::is_ordered_before`](crate::Pm::is_ordered_before).
    fn is_ordered_before(&self, earlier: Place, later: Place) -> bool;
    /// [`Pm::status`](crate::Pm::status): calls `visit` for each part of `place` that was stored
    /// to, in address order.
    fn status(&self, place: Place, visit: &mut dyn FnMut(Status));
    /// [`Pm::in_transaction`](crate::Pm::in_transaction).
    fn in_transaction(&self, thread: ThreadId) -> bool;
    /// [`Pm::is_logged`](crate::Pm::is_logged): logged or allocated by the thread's open
    /// transaction.
    fn is_logged(&self, thread: ThreadId, place: Place) -> bool;
    /// Takes a finding of the rule.
    fn report(&mut self, rule: &Info, finding: Finding);
}

/// What a rule found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// One sentence, no final stop.
    pub message: String,
    /// What happened; never empty, the first is where to look first.
    pub events: Vec<FindingEvent>,
    /// What to do about it.
    pub help: Vec<String>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

/// An event of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingEvent {
    /// Where and when; `None` for the end of the run. `site.kind.role()` is a word for what it was.
    pub site: Option<Site>,
    /// One line, no final stop.
    pub text: String,
}

impl FindingEvent {
    /// Which bytes it is about, if about some.
    pub fn place(&self) -> Option<Place> {
        self.site
            .map(|site| site.place)
            .filter(|place| place.len != 0)
    }
}

/// A rule failed in the middle of a run and is disabled. What it reported before stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFailed {
    /// The rule's id.
    pub rule: String,
    /// One sentence: message and place of a panic.
    pub reason: String,
}

impl fmt::Display for RuleFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the rule {} failed and is off for the rest of the run: {}",
            self.rule, self.reason
        )
    }
}

impl std::error::Error for RuleFailed {}

/// Takes apart what a user writes behind `--rule`: `FILE` or `FILE:OPTIONS`. The first colon
/// counts, so the file's path holds none.
///
/// ```
/// # use std::{ffi::OsStr, path::Path};
/// use brownout_rule::host::split_argument;
///
/// let (file, options) = split_argument(OsStr::new("out/librule.so:name=a:b,deep"));
/// assert_eq!((file, &*options), (Path::new("out/librule.so"), "name=a:b,deep"));
/// let (file, options) = split_argument(OsStr::new("librule.so"));
/// assert_eq!((file, &*options), (Path::new("librule.so"), ""));
/// ```
pub fn split_argument(argument: &OsStr) -> (&Path, Cow<'_, str>) {
    let bytes = argument.as_bytes();
    let colon = bytes.iter().position(|&byte| byte == b':');
    let (file, options) = match colon {
        Some(colon) => (&bytes[..colon], &bytes[colon + 1..]),
        None => (bytes, &[][..]),
    };
    (
        Path::new(OsStr::from_bytes(file)),
        String::from_utf8_lossy(options),
    )
}

/// A rule, ready for one run.
pub struct Plugin {
    table: Table,
    instance: NonNull<c_void>,
    info: Info,
    failed: Option<RuleFailed>,
}

// SAFETY: `Rule` is `Send`, and the interface promises the same of other libraries: calls come one
// at a time, from any thread.
unsafe impl Send for Plugin {}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin")
            .field("info", &self.info)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

impl Plugin {
    /// Loads the library at `path` and starts its rule with `options`. A library can be loaded
    /// several times.
    #[cfg(feature = "host")]
    pub fn load(path: &Path, options: &str) -> Result<Plugin, LoadError> {
        let name = path.display().to_string();
        let table = crate::library::table(path, &name)?;
        // SAFETY: the library stays loaded, and with it the table that it exports.
        let table = unsafe { Table::read(&name, table.address.cast(), table.size)? };
        Plugin::start(&name, table, options)
    }

    /// Starts a rule of this program, through the same interface.
    pub fn in_process<R: Rule>(options: &str) -> Result<Plugin, LoadError> {
        let name = std::any::type_name::<R>();
        let table = crate::export::table::<R>();
        // SAFETY: it is what it says.
        let table = unsafe { Table::read(name, &raw const table, size_of_val(&table))? };
        Plugin::start(name, table, options)
    }

    fn start(name: &str, table: Table, options: &str) -> Result<Plugin, LoadError> {
        let path = || name.to_string();
        let mut raw = RawInfo {
            size: size_of::<RawInfo>() as u32,
            severity: u32::MAX,
            needs: 0,
            reserved: 0,
            kinds: u64::MAX,
            id: RawBytes::EMPTY,
            summary: RawBytes::EMPTY,
        };
        let call = Call::default();
        // SAFETY: the arguments live through the call, as the interface asks; the table was
        // checked.
        let instance = unsafe {
            (table.create)(
                &raw const HOST,
                call.as_raw(),
                RawBytes::new(options.as_bytes()),
                &raw mut raw,
            )
        };
        let reason = call.failure.take();
        let Some(instance) = NonNull::new(instance) else {
            return Err(LoadError::Refused {
                path: path(),
                reason: reason.unwrap_or_else(|| "it gives no reason".to_string()),
            });
        };
        // From here on the instance is destroyed whatever happens.
        let mut plugin = Plugin {
            table,
            instance,
            info: Info::correctness("", ""),
            failed: None,
        };
        // SAFETY: the strings live as long as the instance.
        let (id, summary) = unsafe { (raw.id.to_text(), raw.summary.to_text()) };
        let malformed = |reason| LoadError::Malformed {
            path: path(),
            reason,
        };
        if !is_id(&id) {
            return Err(malformed(format!(
                "its id {id:?} is not made of small letters, digits and hyphens"
            )));
        }
        plugin.info = Info {
            id: Cow::Owned(id),
            severity: match raw.severity {
                SEVERITY_CORRECTNESS => Severity::Correctness,
                SEVERITY_PERFORMANCE => Severity::Performance,
                other => return Err(malformed(format!("there is no severity {other}"))),
            },
            summary: Cow::Owned(summary),
            needs_values: raw.needs & NEEDS_VALUES != 0,
            needs_loads: raw.needs & NEEDS_LOADS != 0,
            kinds: raw.kinds,
        };
        Ok(plugin)
    }

    /// What the rule is.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Why the rule is off, if it failed.
    pub fn failed(&self) -> Option<&RuleFailed> {
        self.failed.as_ref()
    }

    /// Passes an event, *before* the model takes it. An error comes once; after it the rule is off.
    pub fn event(
        &mut self,
        event: &Event<'_>,
        services: &mut dyn HostServices,
    ) -> Result<(), RuleFailed> {
        if self.info.kinds & event.kind.code().bit() == 0 {
            return Ok(());
        }
        let raw = RawEvent::new(event);
        let function = self.table.event;
        self.call(services, |instance, call| {
            // SAFETY: the arguments live through the call; the table was checked; `&mut self` makes
            // it the only one.
            unsafe { function(instance, &raw const HOST, call, &raw const raw) }
        })
    }

    /// Tells the rule that the run is over. An error as from [`Plugin::event`].
    pub fn end(&mut self, services: &mut dyn HostServices) -> Result<(), RuleFailed> {
        let function = self.table.end;
        self.call(services, |instance, call| {
            // SAFETY: as in `event`.
            unsafe { function(instance, &raw const HOST, call) }
        })
    }

    fn call(
        &mut self,
        services: &mut dyn HostServices,
        function: impl FnOnce(*mut c_void, *mut c_void) -> u32,
    ) -> Result<(), RuleFailed> {
        if self.failed.is_some() {
            return Ok(());
        }
        let call = Call {
            services: Some((RefCell::new(services), &self.info)),
            ..Call::default()
        };
        let result = function(self.instance.as_ptr(), call.as_raw());
        let (reason, panic) = (call.failure.take(), call.panic.take());
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
        if result == OK {
            return Ok(());
        }
        let failed = RuleFailed {
            rule: self.info.id.to_string(),
            reason: reason.unwrap_or_else(|| "it gives no reason".to_string()),
        };
        self.failed = Some(failed.clone());
        Err(failed)
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // SAFETY: made by the same table's `create`, and not used again.
        unsafe { (self.table.destroy)(self.instance.as_ptr()) }
    }
}

fn is_id(id: &str) -> bool {
    !id.is_empty()
        && id
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// A library's table after it has been checked.
struct Table {
    create:
        unsafe extern "C" fn(*const HostTable, *mut c_void, RawBytes, *mut RawInfo) -> *mut c_void,
    event: unsafe extern "C" fn(*mut c_void, *const HostTable, *mut c_void, *const RawEvent) -> u32,
    end: unsafe extern "C" fn(*mut c_void, *const HostTable, *mut c_void) -> u32,
    destroy: unsafe extern "C" fn(*mut c_void),
}

impl Table {
    /// # Safety
    ///
    /// A library exports `bytes` bytes at `table` under the interface's name.
    unsafe fn read(
        name: &str,
        table: *const PluginTable,
        bytes: usize,
    ) -> Result<Table, LoadError> {
        let path = || name.to_string();
        let malformed = |reason: String| LoadError::Malformed {
            path: path(),
            reason,
        };
        let expected = size_of::<PluginTable>();
        let too_short = |size: usize| {
            malformed(format!(
                "its table has {size} bytes, and version {VERSION} of the interface has {expected}"
            ))
        };
        if table.is_null() || !table.is_aligned() {
            return Err(LoadError::NotARule { path: path() });
        }
        if bytes < offset_of!(PluginTable, create) {
            return Err(too_short(bytes));
        }
        // SAFETY: the head is there, and is the same in every version.
        let (magic, version, size) =
            unsafe { ((*table).magic, (*table).version, (*table).size as usize) };
        if magic != MAGIC {
            return Err(LoadError::NotARule { path: path() });
        }
        if version != VERSION {
            return Err(LoadError::WrongVersion {
                path: path(),
                theirs: version,
            });
        }
        if size.min(bytes) < expected {
            return Err(too_short(size.min(bytes)));
        }
        // SAFETY: the table is at least as long as we know it.
        let table = unsafe { &*table };
        let missing = |entry: &str| malformed(format!("its table has no entry `{entry}`"));
        Ok(Table {
            create: table.create.ok_or_else(|| missing("create"))?,
            event: table.event.ok_or_else(|| missing("event"))?,
            end: table.end.ok_or_else(|| missing("end"))?,
            destroy: table.destroy.ok_or_else(|| missing("destroy"))?,
        })
    }
}

/// One call of a rule: what the tool's functions find behind `call`.
#[derive(Default)]
struct Call<'a> {
    /// Borrowed for one question at a time: a rule's `visit` may ask further questions.
    services: Option<(RefCell<&'a mut dyn HostServices>, &'a Info)>,
    failure: Cell<Option<String>>,
    /// A panic of the services, which must not unwind through the rule.
    panic: Cell<Option<Box<dyn Any + Send>>>,
}

impl Call<'_> {
    fn as_raw(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// Runs `question`; its panic waits until the rule has returned. After one the services are
    /// left alone.
    fn ask<T>(&self, otherwise: T, question: impl FnOnce(&mut dyn HostServices, &Info) -> T) -> T {
        let Some((services, info)) = &self.services else {
            return otherwise;
        };
        let earlier = self.panic.take();
        if earlier.is_some() {
            self.panic.set(earlier);
            return otherwise;
        }
        let answer = catch_unwind(AssertUnwindSafe(|| {
            question(&mut **services.borrow_mut(), info)
        }));
        answer.unwrap_or_else(|payload| {
            self.panic.set(Some(payload));
            otherwise
        })
    }
}

static HOST: HostTable = HostTable {
    version: VERSION,
    size: size_of::<HostTable>() as u32,
    event_size: size_of::<RawEvent>() as u32,
    status_size: size_of::<RawStatus>() as u32,
    fail,
    is_persisted,
    is_ordered_before,
    status,
    in_transaction,
    is_logged,
    report,
};

/// # Safety
///
/// `call` is what a `Plugin` passed to the rule, and that call has not returned.
unsafe fn call_of<'a>(call: *mut c_void) -> &'a Call<'a> {
    // SAFETY: the caller's promise; a `Call` is only ever borrowed shared.
    unsafe { &*call.cast::<Call<'a>>() }
}

unsafe extern "C" fn fail(call: *mut c_void, message: RawBytes) {
    // SAFETY: the interface's promise about `call` and pointers.
    let (call, message) = unsafe { (call_of(call), message.to_text()) };
    call.failure.set(Some(message));
}

unsafe extern "C" fn is_persisted(call: *mut c_void, place: Place) -> u32 {
    // SAFETY: the interface's promise about `call`.
    let call = unsafe { call_of(call) };
    call.ask(false, |services, _| services.is_persisted(place))
        .into()
}

unsafe extern "C" fn is_ordered_before(call: *mut c_void, earlier: Place, later: Place) -> u32 {
    // SAFETY: the interface's promise about `call`.
    let call = unsafe { call_of(call) };
    call.ask(false, |services, _| {
        services.is_ordered_before(earlier, later)
    })
    .into()
}

unsafe extern "C" fn status(
    call: *mut c_void,
    place: Place,
    visit: unsafe extern "C" fn(data: *mut c_void, status: *const RawStatus),
    data: *mut c_void,
) {
    // SAFETY: the interface's promise about `call`.
    let call = unsafe { call_of(call) };
    let parts = call.ask(Vec::new(), |services, _| {
        let mut parts = Vec::new();
        services.status(place, &mut |status| parts.push(RawStatus::new(&status)));
        parts
    });
    for part in &parts {
        // SAFETY: `part` lives through the call; `visit` and `data` are the rule's.
        unsafe { visit(data, part) }
    }
}

unsafe extern "C" fn in_transaction(call: *mut c_void, thread: ThreadId) -> u32 {
    // SAFETY: the interface's promise about `call`.
    let call = unsafe { call_of(call) };
    call.ask(false, |services, _| services.in_transaction(thread))
        .into()
}

unsafe extern "C" fn is_logged(call: *mut c_void, thread: ThreadId, place: Place) -> u32 {
    // SAFETY: the interface's promise about `call`.
    let call = unsafe { call_of(call) };
    call.ask(false, |services, _| services.is_logged(thread, place))
        .into()
}

unsafe extern "C" fn report(call: *mut c_void, finding: *const RawFinding) {
    // SAFETY: the interface's promise about `call`.
    let call = unsafe { call_of(call) };
    // SAFETY: the interface's promise about pointers; `size` comes first.
    let size = unsafe { (*finding).size as usize };
    if size < size_of::<RawFinding>() {
        // No library of this version sends it: the structure never was shorter.
        return;
    }
    // SAFETY: the interface's promise about pointers; as long as we know it.
    let finding = unsafe { copy(&*finding) };
    call.ask((), |services, info| services.report(info, finding));
}

/// # Safety
///
/// Pointers and counts in `raw` fit, as the interface promises.
unsafe fn copy(raw: &RawFinding) -> Finding {
    // SAFETY: the caller's promise.
    let (events, help, notes) = unsafe {
        (
            slice(raw.events, raw.event_count),
            slice(raw.help, raw.help_count),
            slice(raw.notes, raw.note_count),
        )
    };
    // SAFETY: the caller's promise.
    let text = |bytes: &RawBytes| unsafe { bytes.to_text() };
    let mut events: Vec<FindingEvent> = events
        .iter()
        .map(|event: &RawFindingEvent| FindingEvent {
            site: (event.site != Site::default()).then_some(event.site),
            text: text(&event.text),
        })
        .collect();
    if events.is_empty() {
        events.push(FindingEvent {
            site: None,
            text: "the rule names no place".to_string(),
        });
    }
    Finding {
        message: text(&raw.message),
        events,
        help: help.iter().map(text).collect(),
        notes: notes.iter().map(text).collect(),
    }
}

/// # Safety
///
/// `data` is null, or points at `len` values that stay unchanged for `'a`.
unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: not null; the rest is the caller's promise.
    unsafe { std::slice::from_raw_parts(data, len) }
}
