//! Restricts file access with Landlock, which can only grant: closed paths are left out of the granted ones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, Scope, path_beneath_rules,
};

use crate::policy::FileAccess;

/// An older kernel enforces the part of this ABI that it knows.
const WANTED: ABI = ABI::V6;

/// Devices that hold no data. A disk would expose every file, and an opened terminal its input.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Confines this process and its future children to `files`. They cannot signal processes outside, nor connect to
/// abstract sockets there.
pub(crate) fn restrict(files: &FileAccess) -> Result<(), RulesetError> {
    let (readable, writable): (BTreeSet<PathBuf>, BTreeSet<PathBuf>) = match files {
        FileAccess::All => return Ok(()),
        FileAccess::AllExcept { secrets, write } => {
            let closed = closed_paths(secrets);
            let writable = write.iter().filter_map(|path| path.canonicalize().ok());
            let readable = grants_below(Path::new("/"), &closed).into_iter().collect();
            (readable, writable.flat_map(|path| grants_below(&path, &closed)).collect())
        }
        FileAccess::Listed { read, write, secrets } => {
            let closed = closed_paths(secrets);
            let grants =
                |paths: &[PathBuf]| paths.iter().flat_map(|path| grants_for_listed(path, &closed)).collect();
            (grants(read), grants(write))
        }
    };
    // Files in /dev/shm outlive the server and every process can read them: not granted under a strict policy.
    let shared: &[&str] = if matches!(files, FileAccess::AllExcept { .. }) { &["/dev/shm"] } else { &[] };
    let read = AccessFs::from_read(WANTED);
    let all = AccessFs::from_all(WANTED);
    let devices: BitFlags<AccessFs> =
        AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::IoctlDev;
    Ruleset::default()
        .handle_access(all)?
        .scope(Scope::from_all(WANTED))?
        .create()?
        // Writable paths are readable anyway. A rule takes several system calls, and `/tmp` may have many entries.
        .add_rules(path_beneath_rules(readable.difference(&writable), read))?
        .add_rules(path_beneath_rules(&writable, all))?
        .add_rules(path_beneath_rules(DEVICES, devices))?
        .add_rules(path_beneath_rules(shared, all))?
        .restrict_self()?;
    Ok(())
}

/// Denies everything: opening paths, TCP ports, signals to processes outside.
pub(crate) fn deny_all() -> Result<RestrictionStatus, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(WANTED))?
        .handle_access(AccessNet::from_all(WANTED))?
        .scope(Scope::from_all(WANTED))?
        .create()?
        .restrict_self()
}

/// Closes the targets of links too. All of `/dev` is closed; `DEVICES` have rules of their own.
fn closed_paths(secrets: &[PathBuf]) -> Vec<PathBuf> {
    let mut closed: Vec<PathBuf> = secrets.iter().filter_map(|secret| resolve(secret)).collect();
    closed.push("/dev".into());
    closed
}

/// Resolves links in a path that need not exist: a secret that is created later must be closed too.
fn resolve(path: &Path) -> Option<PathBuf> {
    let (above, real) = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)))?;
    Some(real.join(path.strip_prefix(above).ok()?))
}

/// Paths that together cover everything below `root` except closed paths. A folder that contains a closed path is not
/// granted itself, so it cannot be listed.
fn grants_below(root: &Path, closed: &[PathBuf]) -> Vec<PathBuf> {
    let mut granted = Vec::new();
    grant(root, &closed.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &mut granted);
    granted
}

/// A secret is granted only if it, or a path in it, is listed itself.
fn grants_for_listed(path: &Path, closed: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(real) = path.canonicalize() else { return Vec::new() };
    match closed.iter().any(|secret| real.starts_with(secret)) {
        true => vec![real],
        false => grants_below(&real, closed),
    }
}

fn grant(path: &Path, closed: &[&Path], granted: &mut Vec<PathBuf>) {
    if closed.iter().any(|secret| path.starts_with(secret)) {
        return;
    }
    // Only these can be further below.
    let within: Vec<&Path> = closed.iter().copied().filter(|secret| secret.starts_with(path)).collect();
    if within.is_empty() {
        return granted.push(path.to_path_buf());
    }
    let Ok(entries) = std::fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        // Links are skipped: the path they lead to is granted or closed on its own.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            grant(&entry.path(), &within, granted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SB-04
    #[test]
    fn grants_everything_except_secrets_and_folders_above_them() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for folder in [".ssh/deep", ".config/gcloud", ".config/app", "work"] {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(home.join(".ssh"), home.join("link")).unwrap();
        let closed = closed_paths(&[home.join(".ssh"), home.join(".config/gcloud"), home.join(".missing")]);
        let granted = grants_below(Path::new("/"), &closed);
        let here: Vec<_> = granted.iter().filter_map(|path| path.strip_prefix(&home).ok()).collect();
        let mut here: Vec<_> = here.iter().map(|path| path.to_string_lossy()).collect();
        here.sort();
        assert_eq!(here, [".config/app", "work"]);
        assert!(granted.iter().all(|path| !home.starts_with(path)), "no folder above a secret is granted");
        assert_eq!(
            grants_below(&home.join(".ssh/deep"), &closed),
            [] as [PathBuf; 0],
            "nothing inside a secret is granted"
        );
        let empty = tempfile::tempdir().unwrap();
        let empty = empty.path().canonicalize().unwrap();
        let granted = grants_below(&empty, &closed_paths(&[empty.join(".ssh")]));
        assert_eq!(granted, [] as [PathBuf; 0], "a secret that does not exist yet is closed");
    }
}
