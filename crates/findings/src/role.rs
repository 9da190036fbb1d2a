//! What an event of a finding was.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! roles {
    ($($name:ident $word:literal $text:literal)*) => {
        /// What an event of a finding was. In reports it is one word (`docs/report.md` has the
        /// list).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum Role {
            $(#[doc = $text] $name,)*
            /// Nothing was said.
            #[default]
            Unknown,
        }

        impl Role {
            /// All but [`Role::Unknown`].
            pub const ALL: &[Role] = &[$(Role::$name),*];

            /// The word for it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Role::$name => $word,)*
                    Role::Unknown => "",
                }
            }
        }
    };
}

roles! {
    Store "store" "Memory is stored to."
    EarlierStore "earlier-store" "It was stored to before."
    LaterStore "later-store" "Something else was stored to, which was to come later."
    Load "load" "It is read."
    Flush "flush" "A line is written back."
    EarlierFlush "earlier-flush" "It was written back before."
    Target "target" "What a pointer points to that was written back itself."
    Completed "completed" "Something completed write-backs that was not meant to."
    Fence "fence" "A fence."
    Unlock "unlock" "A lock is given back."
    Log "log" "A transaction logs a range."
    EarlierLog "earlier-log" "A range was logged before."
    Unlog "unlog" "A transaction forgets that it has logged a range."
    Alloc "alloc" "Memory is allocated."
    Free "free" "Memory is freed."
    Assertion "assertion" "The program claims something."
    SectionEnd "section-end" "A section of the program ends."
    TxBegin "tx-begin" "A transaction begins."
    TxEnd "tx-end" "A transaction ends."
    Map "map" "A file is mapped."
    Unmap "unmap" "It is unmapped."
    File "file" "A file is found."
    Sync "sync" "`msync` or `fsync`."
    Write "write" "A file is written to."
    Truncate "truncate" "Its size changes."
    Call "call" "A function of a library is called."
    Request "request" "A client request."
    Marker "marker" "A marker of the program."
    Variable "variable" "A range gets or loses a name."
    Start "start" "A process or thread begins."
    Exit "exit" "A process or thread, or the run, ends."
    Event "event" "Something else."
    Crash "crash" "The power fails."
    Early "early" "A store that survives, and has overtaken a lost one."
    Survivor "survivor" "A store that survives and does harm by it, although nothing is lost: it was made too early."
    Late "late" "A store that is made only after the crash, and ends the failure."
    Name "name" "A name or a size changes."
    Lookup "lookup" "Recovery looks for a file by its name."
    Symptom "symptom" "What recovery does wrong."
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(word: &str) -> Result<Role, String> {
        let known = Role::ALL.iter().find(|role| role.name() == word);
        match (known, word) {
            (Some(role), _) => Ok(*role),
            (None, "") => Ok(Role::Unknown),
            _ => Err(format!("no event has the role {word:?}")),
        }
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Role {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Role, D::Error> {
        let word = String::deserialize(deserializer)?;
        word.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_unique_and_come_back() {
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(*role));
            let text = serde_json::to_string(role).unwrap();
            assert_eq!(text, format!("\"{role}\""));
            assert_eq!(serde_json::from_str::<Role>(&text).unwrap(), *role);
        }
        assert!(serde_json::from_str::<Role>("\"stroe\"").is_err());
    }
}
