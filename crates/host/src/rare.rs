//! Rare records to events: six words and a text, by the table of kinds.

use brownout_abi::rare;
use brownout_kinds::event_kinds;
use brownout_trace::event::{
    EventKind, ExitStatus, FileId, NameChange, PmReason, ProcessId, TargetAddr, ThreadId,
};

/// What the ring needs of the table of kinds: how the rare ones are put together from their words
/// and text.
macro_rules! define_kind {
    (
        ring {
            $(
                $(#[$_doc:meta])*
                $_tag:literal $NUMBER:ident ring $_number:literal $_name:literal $Kind:ident
                $({ $( $(#[$_field_doc:meta])* $field:ident: $ty:ty = $_place:ident, $_how:ident $_member:literal; )* })?
            )*
        }
        other { $($_other:tt)* }
    ) => {
        /// The event of rare record `which`, if there is such a number and what it holds makes
        /// sense.
        pub fn kind<'a>(which: u64, words: [u64; WORDS], text: &'a [u8]) -> Option<EventKind<'a>> {
            let mut words = words.into_iter();
            Some(match which {
                $( rare::$NUMBER => {
                    const { assert!(WORDS.checked_sub(0 $($( + <$ty as FromRare<'_>>::TAKES )*)?).is_some(), "a kind has too many words") };
                    EventKind::$Kind { $($( $field: FromRare::from_rare(&mut words, text)?, )*)? }
                } )*
                _ => return None,
            })
        }
    };
}

event_kinds!(define_kind);

/// Words of a rare record, before its text.
pub const WORDS: usize = 6;

/// A field of a rare event, from the words that are left of its record, or its text. Numbers lose
/// the digits that their type has not got: the engine passes on what it finds in the program's
/// registers, and the kernel does not look at the upper halves either.
trait FromRare<'a>: Sized {
    /// How many words it takes.
    const TAKES: usize = 1;

    fn from_rare(words: &mut impl Iterator<Item = u64>, text: &'a [u8]) -> Option<Self>;
}

macro_rules! from_word {
    ($($ty:ty: $word:ident => $value:expr;)*) => { $(
        impl FromRare<'_> for $ty {
            fn from_rare(words: &mut impl Iterator<Item = u64>, _: &[u8]) -> Option<$ty> {
                let $word = words.next()?;
                $value
            }
        }
    )* };
}
from_word! {
    u64: word => Some(word);
    i64: word => Some(word as i64);
    u32: word => Some(word as u32);
    i32: word => Some(word as i32);
    bool: word => Some(word != 0);
    TargetAddr: word => Some(TargetAddr(word));
    FileId: word => Some(FileId(word as u32));
    ProcessId: word => Some(ProcessId(word as u32));
    ThreadId: word => Some(ThreadId(word as u32));
    PmReason: word => PmReason::from_number(word);
    NameChange: word => NameChange::from_number(word);
}

impl<const N: usize> FromRare<'_> for [u64; N] {
    const TAKES: usize = N;

    fn from_rare(words: &mut impl Iterator<Item = u64>, _: &[u8]) -> Option<[u64; N]> {
        let mut array = [0; N];
        for word in &mut array {
            *word = words.next()?;
        }
        Some(array)
    }
}

impl FromRare<'_> for ExitStatus {
    const TAKES: usize = 2;

    fn from_rare(words: &mut impl Iterator<Item = u64>, _: &[u8]) -> Option<ExitStatus> {
        let (how, number) = (words.next()?, words.next()? as i32);
        match how {
            0 => Some(ExitStatus::Code(number)),
            1 => Some(ExitStatus::Signal(number)),
            2 => Some(ExitStatus::Exec),
            _ => None,
        }
    }
}

impl<'a> FromRare<'a> for &'a [u8] {
    const TAKES: usize = 0;

    fn from_rare(_: &mut impl Iterator<Item = u64>, text: &'a [u8]) -> Option<&'a [u8]> {
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_fields_in_order_and_slices_the_text() {
        let words = [1, 2, 3, 1, 5, 6];
        let file = EventKind::File {
            file: FileId(1),
            path: b"/a",
            size: 2,
            reason: PmReason::Dax,
            created: true,
        };
        assert_eq!(kind(rare::FILE, words, b"/a"), Some(file));
        let exit = EventKind::ProcessExit {
            process: ProcessId(7),
            status: ExitStatus::Signal(11),
        };
        assert_eq!(
            kind(rare::PROCESS_EXIT, [7, 1, 11, 0, 0, 0], b""),
            Some(exit)
        );
        let annotation = EventKind::Annotation {
            code: 1,
            args: [2, 3, 1, 5, 6],
            text: b"name",
        };
        assert_eq!(kind(rare::ANNOTATION, words, b"name"), Some(annotation));
        // A descriptor as the program has it in a register.
        let output = EventKind::Output { fd: -1, size: 8 };
        assert_eq!(
            kind(rare::OUTPUT, [0x7_ffff_ffff, 8, 0, 0, 0, 0], b""),
            Some(output)
        );
        assert_eq!(
            kind(rare::THREAD_EXIT, [0; 6], b""),
            Some(EventKind::ThreadExit)
        );
    }

    #[test]
    fn what_makes_no_sense_is_no_event() {
        assert_eq!(kind(rare::FILE, [1, 2, 99, 0, 0, 0], b"/a"), None);
        assert_eq!(kind(rare::NAME, [99, 0, 0, 0, 0, 0], b"/a"), None);
        assert_eq!(kind(rare::PROCESS_EXIT, [1, 3, 0, 0, 0, 0], b""), None);
        assert_eq!(kind(0, [0; 6], b""), None);
    }
}
