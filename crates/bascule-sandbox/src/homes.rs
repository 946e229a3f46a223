//! Finds the home folders whose secrets a sandbox closes.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

/// The first id of people's accounts on common systems. Lower ones belong to services, whose homes are system folders.
const FIRST_PERSON: u32 = 1000;
/// The account `nobody`.
const NOBODY: u32 = 65534;

/// Returns `$HOME`, if it is set, and the home in the user database: the variable may be unset or wrong. For root, the homes
/// of all people follow, which root can read.
pub fn homes() -> Vec<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let variable = std::env::var_os("HOME").map(PathBuf::from);
    let others = if user == 0 { people() } else { Vec::new() };
    let mut homes = Vec::new();
    for home in variable.into_iter().chain(home_of(user)).chain(others) {
        if home.is_absolute() && home != Path::new("/") && !homes.contains(&home) {
            homes.push(home);
        }
    }
    homes
}

fn people() -> Vec<PathBuf> {
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let homes = accounts.lines().filter_map(|account| {
        let fields: Vec<&str> = account.split(':').collect();
        let user: u32 = fields.get(2)?.parse().ok()?;
        (user >= FIRST_PERSON && user != NOBODY).then_some(PathBuf::from(fields.get(5)?))
    });
    homes.collect()
}

/// Returns the home of this user in the user database, else `$HOME`. Unlike the variable, it is the same for every process.
pub fn own_home() -> Option<PathBuf> {
    let variable = || std::env::var_os("HOME").map(PathBuf::from);
    home_of(rustix::process::getuid().as_raw()).or_else(variable).filter(|home| home.is_absolute())
}

/// Asks the user database, which need not be a file.
fn home_of(user: u32) -> Option<PathBuf> {
    if user == NOBODY {
        return None;
    }
    let mut buffer = vec![0; 16 << 10];
    // SAFETY: all-zero bytes are a valid value of this struct of pointers and numbers.
    let mut account: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid, and `buffer` has the given length.
    let result = unsafe {
        libc::getpwuid_r(user, &raw mut account, buffer.as_mut_ptr(), buffer.len(), &raw mut found)
    };
    if result != 0 || found.is_null() || account.pw_dir.is_null() {
        return None;
    }
    // SAFETY: the call succeeded, so `pw_dir` is a string in `buffer`.
    let home = unsafe { CStr::from_ptr(account.pw_dir) };
    Some(PathBuf::from(home.to_str().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SB-07
    #[test]
    fn finds_homes_of_user_database() {
        let home = home_of(rustix::process::getuid().as_raw());
        assert!(home.is_none_or(|home| home == Path::new("/") || homes().contains(&home)));
        assert_eq!(home_of(0).as_deref(), Some(Path::new("/root")));
        assert_eq!(home_of(4_000_000_000), None);
    }
}
