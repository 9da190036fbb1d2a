//! In containers, and as an ordinary user.
//!
//! The program `container` installs a seccomp profile like that of the usual container engines: no
//! `personality` (so randomisation stays on), no `pidfd_getfd`, no namespaces. Where the tests run
//! as root, all is done once more as the user `nobody`.
//!
//! Does not check: containers themselves, with their own file systems and process numbers.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use brownout_tests::{Invocation, Outcome, Scratch, examples, layout, tool, trial};
use libtest_mimic::Arguments;

const TIMEOUT: Duration = Duration::from_secs(300);

/// Who runs the tool.
#[derive(Clone, Copy)]
enum User {
    /// Whoever runs the tests.
    Same,
    Nobody,
}

fn main() {
    let arguments = Arguments::from_args();
    let mut trials = vec![
        trial("addresses_repeat", || addresses_repeat(User::Same)),
        trial("pools_are_created", || pools_are_created(User::Same)),
    ];
    // Nobody but root can become somebody else; an ordinary user's tests are those above.
    if is_root() {
        trials.push(trial("addresses_repeat_for_nobody", || {
            addresses_repeat(User::Nobody)
        }));
        trials.push(trial("pools_are_created_by_nobody", || {
            pools_are_created(User::Nobody)
        }));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// A folder with copies of what is run, which anybody can reach and use.
struct Place {
    scratch: Scratch,
    user: User,
}

impl Place {
    fn new(user: User) -> Result<Place> {
        tool::expect_built()?;
        let scratch = Scratch::new()?;
        let everybody = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))
                .with_context(|| path.display().to_string())
        };
        everybody(scratch.path(), 0o777)?;
        let programs = [
            ("brownout", layout::brownout()),
            ("container", layout::programs().join("container")),
            ("addresses", layout::programs().join("addresses")),
            ("mapcli", examples::binary("mapcli")?),
        ];
        for (name, from) in programs {
            let to = scratch.join(name);
            fs::copy(&from, &to).with_context(|| from.display().to_string())?;
            everybody(&to, 0o755)?;
        }
        Ok(Place { scratch, user })
    }

    /// Runs the tool in a container.
    fn run(&self, words: &[&str]) -> Result<Outcome> {
        let mut argv: Vec<OsString> = Vec::new();
        if let User::Nobody = self.user {
            let become_nobody = [
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
            ];
            argv.extend(become_nobody.map(OsString::from));
        }
        argv.extend(["./container", "./brownout"].map(OsString::from));
        argv.extend(words.iter().map(OsString::from));
        Invocation::new(argv, self.scratch.path())
            .timeout(TIMEOUT)
            .run()
    }
}

fn succeeded(outcome: &Outcome, what: &str) -> Result<()> {
    ensure!(outcome.status == 0, "{what}\n{}", outcome.describe());
    Ok(())
}

fn addresses_repeat(user: User) -> Result<()> {
    let place = Place::new(user)?;
    let mut printed = Vec::new();
    for _ in 0..2 {
        let outcome = place.run(&["run", "--deterministic", "--", "./addresses"])?;
        succeeded(&outcome, "run --deterministic")?;
        printed.push(outcome.stdout_text());
    }
    ensure!(
        printed[0] == printed[1],
        "addresses differ:\n{}\n{}",
        printed[0],
        printed[1]
    );
    Ok(())
}

/// libpmemobj creates a pool without any permissions and grants them at the end.
fn pools_are_created(user: User) -> Result<()> {
    let place = Place::new(user)?;
    fs::write(place.scratch.join("commands"), "i 1\ni 2\nr 1\nq\n")?;
    let verified = place.run(&[
        "record", "--verify", "--stdin", "commands", "-o", "trace", "--", "./mapcli", "btree",
        "pool",
    ])?;
    succeeded(&verified, "record --verify")?;
    tool::expect_verified(&verified)?;
    let setup = "rm -f pool; ./mapcli btree pool 7 < /dev/null";
    let explored = place.run(&[
        "explore",
        "--setup",
        setup,
        "--stdin",
        "commands",
        "--depth",
        "1",
        "--recover-stdin",
        "commands",
        "--",
        "./mapcli",
        "btree",
        "pool",
    ])?;
    succeeded(&explored, "explore")?;
    // Creation itself, which a crash does break: what is asked here is that the tool gets that far.
    fs::remove_file(place.scratch.join("pool")).context("the pool is not there")?;
    let confirmed = place.run(&[
        "check",
        "--confirm",
        "--stdin",
        "commands",
        "--",
        "./mapcli",
        "btree",
        "pool",
    ])?;
    ensure!(
        confirmed.status <= 1,
        "check --confirm\n{}",
        confirmed.describe()
    );
    Ok(())
}
