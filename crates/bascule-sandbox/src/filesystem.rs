//! Which files: Landlock, which can only allow. What must stay closed is left out of what is granted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, Scope, path_beneath_rules,
};

use crate::policy::Files;

/// What we were written against; an older kernel gives what it has of it.
const WANTED: ABI = ABI::V6;

/// Devices that hold nothing. Of the others, a disk would hold everything.
/// Terminals least of all: whoever can open one can read what is typed into it.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Confines this process and its children to come. Signals and abstract sockets stay within them.
pub(crate) fn confine(files: &Files) -> Result<Option<RestrictionStatus>, RulesetError> {
    let (readable, writable): (BTreeSet<PathBuf>, BTreeSet<PathBuf>) = match files {
        Files::All => return Ok(None),
        Files::AllBut { secrets, write } => {
            let closed = closed(secrets);
            let writable = write.iter().filter_map(|path| path.canonicalize().ok());
            let readable = below(Path::new("/"), &closed).into_iter().collect();
            (readable, writable.flat_map(|path| below(&path, &closed)).collect())
        }
        Files::Listed { read, write, secrets } => {
            let closed = closed(secrets);
            let open = |paths: &[PathBuf]| paths.iter().flat_map(|path| listed(path, &closed)).collect();
            (open(read), open(write))
        }
    };
    // What is written there stays, and can be read by all: not for those who may only do what is listed.
    let shared: &[&str] = if matches!(files, Files::AllBut { .. }) { &["/dev/shm"] } else { &[] };
    let read = AccessFs::from_read(WANTED);
    let all = AccessFs::from_all(WANTED);
    let devices: BitFlags<AccessFs> =
        AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir | AccessFs::IoctlDev;
    let status = Ruleset::default()
        .handle_access(all)?
        .scope(Scope::from_all(WANTED))?
        .create()?
        // What may be written may be read. A rule takes several system calls, and a full `/tmp` has many entries.
        .add_rules(path_beneath_rules(readable.difference(&writable), read))?
        .add_rules(path_beneath_rules(&writable, all))?
        .add_rules(path_beneath_rules(DEVICES, devices))?
        .add_rules(path_beneath_rules(shared, all))?
        .restrict_self()?;
    Ok(Some(status))
}

/// Closes everything: no path can be opened, no TCP port reached, nobody outside signalled. Says what came of it.
pub(crate) fn close() -> Result<RestrictionStatus, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(WANTED))?
        .handle_access(AccessNet::from_all(WANTED))?
        .scope(Scope::from_all(WANTED))?
        .create()?
        .restrict_self()
}

/// What stays closed. A link to a secret place protects the place; of the devices only `DEVICES` are opened.
fn closed(secrets: &[PathBuf]) -> Vec<PathBuf> {
    let mut closed: Vec<PathBuf> = secrets.iter().filter_map(|secret| real(secret)).collect();
    closed.push("/dev".into());
    closed
}

/// Where a path leads, or would: what is not there yet stays closed when it appears.
fn real(path: &Path) -> Option<PathBuf> {
    let there = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let (above, real) = there?;
    Some(real.join(path.strip_prefix(above).ok()?))
}

/// Paths that together hold everything below `root` except what is closed. A folder above a closed one is not
/// granted itself, so it cannot be listed; everything else in it is.
fn below(root: &Path, closed: &[PathBuf]) -> Vec<PathBuf> {
    let mut granted = Vec::new();
    grant(root, &closed.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &mut granted);
    granted
}

/// What a listed path opens. A secret is opened only by those who name it, or something in it.
fn listed(path: &Path, closed: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(real) = path.canonicalize() else { return Vec::new() };
    match closed.iter().any(|secret| real.starts_with(secret)) {
        true => vec![real],
        false => below(&real, closed),
    }
}

fn grant(path: &Path, closed: &[&Path], granted: &mut Vec<PathBuf>) {
    if closed.iter().any(|secret| path.starts_with(secret)) {
        return;
    }
    // The others cannot be anywhere below.
    let within: Vec<&Path> = closed.iter().copied().filter(|secret| secret.starts_with(path)).collect();
    if within.is_empty() {
        return granted.push(path.to_path_buf());
    }
    let Ok(entries) = std::fs::read_dir(path) else { return };
    for entry in entries.flatten() {
        // A link grants nothing: where it leads is granted, or closed, by its own path.
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
    fn everything_is_granted_except_the_secrets_and_what_leads_to_them() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for folder in [".ssh/deep", ".config/gcloud", ".config/app", "work"] {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(home.join(".ssh"), home.join("link")).unwrap();
        let closed = closed(&[home.join(".ssh"), home.join(".config/gcloud"), home.join(".missing")]);
        let granted = below(Path::new("/"), &closed);
        let here: Vec<_> = granted.iter().filter_map(|path| path.strip_prefix(&home).ok()).collect();
        let mut here: Vec<_> = here.iter().map(|path| path.to_string_lossy()).collect();
        here.sort();
        assert_eq!(here, [".config/app", "work"]);
        assert!(
            granted.iter().all(|path| !home.starts_with(path)),
            "nothing above the secrets is granted whole"
        );
        assert_eq!(below(&home.join(".ssh/deep"), &closed), [] as [PathBuf; 0], "nor anything within them");
        let empty = tempfile::tempdir().unwrap();
        let empty = empty.path().canonicalize().unwrap();
        let granted = below(&empty, &super::closed(&[empty.join(".ssh")]));
        assert_eq!(granted, [] as [PathBuf; 0], "a secret that is not there yet will be one");
    }
}
