//! Finds the home folders of users. A sandbox denies access to the secrets in them.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

/// The first user id of a person on common systems. Lower ids belong to services, whose homes are system folders.
const FIRST_PERSON: u32 = 1000;
/// The account `nobody`.
const NOBODY: u32 = 65534;

/// Returns the folders in which the secrets of users lie:
///
/// - `$HOME` and the home in the user database, because the variable may be unset or wrong;
/// - for root, which can read them, the homes of all persons in `/etc/passwd`;
/// - folders like `$XDG_CONFIG_HOME`.
///
/// Each folder is returned by its name, and again by its real path if that differs.
pub fn homes() -> Vec<PathBuf> {
    let user = rustix::process::getuid().as_raw();
    let variable = std::env::var_os("HOME").map(PathBuf::from);
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named: Vec<PathBuf> = variable
        .into_iter()
        .chain(home_of(user))
        .chain(other_homes(user, &accounts))
        .chain(xdg_folders())
        .collect();
    // A home may be a link; paths of processes are real ones.
    let real = named.iter().filter_map(|home| home.canonicalize().ok()).collect::<Vec<_>>();
    let mut homes = Vec::new();
    for home in named.into_iter().chain(real) {
        if home.is_absolute() && home != Path::new("/") && !homes.contains(&home) {
            homes.push(home);
        }
    }
    homes
}

/// Returns the folders of the XDG variables, which may lie outside of the home.
fn xdg_folders() -> impl Iterator<Item = PathBuf> {
    const VARIABLES: [&str; 4] = ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"];
    VARIABLES.iter().filter_map(std::env::var_os).map(PathBuf::from)
}

/// Returns the homes of all persons in the text of `/etc/passwd` if the user is root, which can read them.
fn other_homes(user: u32, accounts: &str) -> impl Iterator<Item = PathBuf> {
    accounts.lines().filter(move |_| user == 0).filter_map(|account| {
        let fields: Vec<&str> = account.split(':').collect();
        let user: u32 = fields.get(2)?.parse().ok()?;
        (user >= FIRST_PERSON && user != NOBODY).then_some(PathBuf::from(fields.get(5)?))
    })
}

/// Returns the home of this user in the user database, else `$HOME`. Unlike the variable, it is the same for every process.
pub fn own_home() -> Option<PathBuf> {
    let variable = || std::env::var_os("HOME").map(PathBuf::from);
    let home = home_of(rustix::process::getuid().as_raw()).or_else(variable);
    home.filter(|home| home.is_absolute() && home != Path::new("/"))
}

/// Looks up a home in the user database, which need not be a file.
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

    // req: SB-07
    #[test]
    fn root_finds_homes_of_persons_but_not_of_services() {
        let accounts = "root:x:0:0::/root:/bin/sh\nmail:x:8:8::/var/mail:/bin/false\nbroken\n\
                        ann:x:1000:1000::/home/ann:/bin/sh\nnobody:x:65534:65534::/nowhere:/bin/false\n";
        assert_eq!(other_homes(0, accounts).collect::<Vec<_>>(), [Path::new("/home/ann")]);
        assert_eq!(other_homes(1000, accounts).count(), 0);
    }
}
