//! Searches the folders of a project for secrets: `.env` files, stored credentials of version control and of package managers,
//! tokens in the files of MCP clients, and hard links to secrets of the home.

use std::collections::{HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::secrets::{FileIdentity, Secrets};

/// Finds secrets in folders that a server may read. A folder that is too large to be searched counts as a secret.
pub fn find_project_secrets(folders: &[PathBuf], secrets: &Secrets) -> Vec<PathBuf> {
    let linked = secrets.with_hard_links();
    let mut found = Vec::new();
    for folder in folders {
        search(folder, &linked, &mut found);
    }
    found
}

/// Bounds the search in a folder. Its server may have filled it.
const MAX_SEARCHED: usize = 200_000;

/// A folder of a search.
struct OpenFolder {
    path: PathBuf,
    /// The entry of the searched folder that it lies in.
    top: PathBuf,
}

fn search(root: &Path, linked: &HashSet<FileIdentity>, found: &mut Vec<PathBuf>) {
    // Breadth first: secrets are rarely deep.
    let mut open = VecDeque::from([OpenFolder { path: root.to_path_buf(), top: root.to_path_buf() }]);
    let mut seen = 0;
    while let Some(folder) = open.pop_front() {
        for entry in fs::read_dir(&folder.path).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MAX_SEARCHED {
                let unsearched = open.into_iter().map(|folder| folder.top).chain([folder.top]);
                return found.extend(unsearched.collect::<HashSet<_>>());
            }
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if kind.is_dir() && !holds_packages(&path, &name) {
                let top = if folder.path == root { path.clone() } else { folder.top.clone() };
                open.push_back(OpenFolder { path, top });
            } else if kind.is_file() && (is_project_secret(&name, &path) || is_linked(&entry, linked)) {
                found.push(path);
            } else if kind.is_symlink() && is_project_secret(&name, &path) {
                found.extend(path.canonicalize());
            }
        }
    }
}

/// Returns true for a folder of installed packages or objects, which holds no files of the user.
fn holds_packages(folder: &Path, name: &str) -> bool {
    match name {
        "node_modules" | "site-packages" | "__pycache__" => true,
        "objects" => folder.parent().is_some_and(|above| above.ends_with(".git")),
        "target" => folder.join("CACHEDIR.TAG").is_file(),
        // A virtual environment is not known by its `pyvenv.cfg`: a server could put that file into any folder that it
        // writes. Its packages are in `site-packages`.
        _ => false,
    }
}

/// Returns true if the file is one of `linked` under another name.
fn is_linked(entry: &fs::DirEntry, linked: &HashSet<FileIdentity>) -> bool {
    !linked.is_empty()
        && entry.metadata().is_ok_and(|metadata| linked.contains(&FileIdentity::from_metadata(&metadata)))
}

fn is_project_secret(name: &str, path: &Path) -> bool {
    const CLIENT_FILES: [&str; 6] =
        ["mcp.json", ".mcp.json", "settings.json", "config.toml", "opencode.json", "opencode.jsonc"];
    const NAMES: [&str; 4] = [".git-credentials", ".netrc", ".pypirc", ".envrc"];
    const TEMPLATES: [&str; 6] = ["example", "sample", "template", "dist", "defaults", "schema"];
    let is_template = || name.rsplit('.').next().is_some_and(|end| TEMPLATES.contains(&end));
    let is_env = name == ".env" || (name.starts_with(".env.") && !is_template());
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
    is_env
        || NAMES.contains(&name)
        || (name.starts_with("config") && is_in_git(path) && holds_credentials(path))
        // Its registries are needed: a package manager without them asks the public one.
        || (name == ".npmrc" && holds_credentials(path))
        || (name == "hgrc" && folder == ".hg" && holds_credentials(path))
        // Files of MCP clients, which may hold the token of the bridge.
        || (CLIENT_FILES.contains(&name) && holds_token(path))
}

fn is_in_git(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.components().any(|part| part.as_os_str() == ".git"))
}

/// Programs need these files, so they are closed only if they hold a password or token.
fn holds_credentials(path: &Path) -> bool {
    /// A larger file is no configuration.
    const MAX_BYTES: u64 = 1 << 20;
    const KEYS: [&str; 5] = ["extraheader", ".password", "_auth", "_password", "authtoken"];
    let Ok(file) = open_regular(path) else { return true };
    let mut bytes = Vec::new();
    if file.take(MAX_BYTES + 1).read_to_end(&mut bytes).is_err() || bytes.len() as u64 > MAX_BYTES {
        return true;
    }
    let text = String::from_utf8_lossy(&bytes).to_lowercase();
    text.lines().any(|line| has_user(line) || KEYS.iter().any(|key| line.contains(key)))
}

/// Returns true if the file has a literal token of HTTP. Other programs have files of these names too, which stay open.
fn holds_token(path: &Path) -> bool {
    const MAX_BYTES: u64 = 4 << 20;
    let mut bytes = Vec::new();
    let read = open_regular(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    let text = String::from_utf8_lossy(&bytes).to_lowercase();
    read.is_ok() && text.split("bearer ").skip(1).any(|after| !after.starts_with('$'))
}

/// Returns true if a line has a URL with a password, or with a user that is long enough to be a token.
fn has_user(line: &str) -> bool {
    let address = line.split_once("://").map_or("", |(_, rest)| rest);
    let host = address.split(['/', ' ']).next().unwrap_or_default();
    host.split_once('@').is_some_and(|(user, _)| user.contains(':') || user.len() > 20)
}

/// Opens a file without waiting: a pipe or a device may be in its place.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates files (name, content) in a folder and returns the names that are found to be secrets.
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let found = find_project_secrets(&[folder.path().to_path_buf()], &Secrets::of_homes(&[]));
        let mut found: Vec<_> =
            found.iter().map(|path| path.strip_prefix(folder.path()).unwrap().to_str().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, expected);
    }

    // req: SB-07
    #[test]
    fn finds_environment_files_but_not_their_templates() {
        check(
            &[
                (".env", ""),
                (".env.local", ""),
                (".env.example", ""),
                ("a/b/.env", ""),
                ("env", ""),
                (".envrc", ""),
            ],
            &[".env", ".env.local", ".envrc", "a/b/.env"],
        );
        check(&[("node_modules/x/.env", ""), ("venv/lib/python3/site-packages/x/.env", "")], &[]);
        check(&[("sub/pyvenv.cfg", ""), ("sub/.env", "")], &["sub/.env"]);
        check(&[("target/.env", ""), ("1/2/3/4/5/6/7/8/.env", "")], &["1/2/3/4/5/6/7/8/.env", "target/.env"]);
    }

    // req: SB-07
    #[test]
    fn closes_settings_of_packages_only_with_credentials() {
        check(&[(".npmrc", "registry=https://corp.example/\n")], &[]);
        check(&[(".npmrc", "//corp.example/:_authToken=x\n")], &[".npmrc"]);
        check(&[(".git/config", &"x".repeat(2 << 20))], &[".git/config"]);
    }

    // req: SB-07, GW-07
    #[test]
    fn closes_files_of_clients_only_with_a_token() {
        let file =
            |value: &str| format!(r#"{{"mcpServers":{{"x":{{"headers":{{"Authorization":"{value}"}}}}}}}}"#);
        check(&[(".cursor/mcp.json", &file("Bearer 0123"))], &[".cursor/mcp.json"]);
        check(&[(".mcp.json", &file("Bearer ${TOKEN}")), ("a/settings.json", "{}")], &[]);
        check(
            &[(".codex/config.toml", "http_headers = { Authorization = \"Bearer 0123\" }")],
            &[".codex/config.toml"],
        );
    }

    // req: SB-07
    #[test]
    fn finds_configuration_of_version_control_only_with_credentials() {
        let remote = |url: &str| format!("[remote \"origin\"]\n\turl = {url}\n");
        check(&[(".git/config", &remote("https://host/x.git"))], &[]);
        check(&[(".git/config", &remote("git@host:x.git"))], &[]);
        check(&[(".git/config", &remote("https://me@host/x.git"))], &[]);
        check(&[(".git/config", &remote("https://me:hunter2@host/x.git"))], &[".git/config"]);
        check(&[(".git/config", &remote("https://ghp_0123456789abcdefghij@host/x"))], &[".git/config"]);
        check(&[(".git/modules/sub/config", &remote("https://me:pw@host/x"))], &[".git/modules/sub/config"]);
        check(&[(".git/config", "[http]\n\textraHeader = AUTHORIZATION: basic x")], &[".git/config"]);
    }

    // req: SB-07
    #[test]
    fn finds_hard_links_to_secrets_of_the_home() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        fs::create_dir_all(home.join(".ssh")).unwrap();
        fs::create_dir_all(home.join("work/deep")).unwrap();
        fs::write(home.join(".ssh/id"), "key").unwrap();
        fs::hard_link(home.join(".ssh/id"), home.join("work/deep/plain")).unwrap();
        fs::write(home.join("work/deep/other"), "").unwrap();
        let found =
            find_project_secrets(&[home.join("work")], &Secrets::of_homes(std::slice::from_ref(&home)));
        assert_eq!(found, [home.join("work/deep/plain")]);
    }

    // req: SB-07
    #[test]
    fn finds_hard_links_to_configurations_and_beside_large_folders() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for folder in [".ssh", ".claude/todos", ".config/bascule", "work"] {
            fs::create_dir_all(home.join(folder)).unwrap();
        }
        (0..4_100).for_each(|name| fs::write(home.join(format!(".claude/todos/{name}")), "").unwrap());
        for (secret, link) in [(".ssh/id", "work/a"), (".config/bascule/mcp.json", "work/b")] {
            fs::write(home.join(secret), "").unwrap();
            fs::hard_link(home.join(secret), home.join(link)).unwrap();
        }
        let mut found =
            find_project_secrets(&[home.join("work")], &Secrets::of_homes(std::slice::from_ref(&home)));
        found.sort();
        assert_eq!(found, [home.join("work/a"), home.join("work/b")]);
    }
}
