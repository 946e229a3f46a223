//! Finds the configuration file: an explicit path, else the default paths.
//!
//! Remembers how it was found: a file of the working folder may be somebody else's work.

use std::io;
use std::path::{Path, PathBuf};

use super::ConfigError;
use super::expand::EnvLookup;

/// A configuration file, and how it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigLocation {
    pub path: PathBuf,
    pub origin: ConfigOrigin,
}

/// The way in which a configuration file was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigOrigin {
    /// The user has named it, and thereby trusts it.
    Named,
    /// It was there. It is used once the user trusts it.
    WorkingFolder,
    /// It is the user's own file, which no other program puts there.
    UserFolder,
}

/// Returns the explicit path, else the first default path that exists.
///
/// An explicit path is not checked here: reading it reports what is wrong. An empty `cwd` gives relative paths.
pub fn find(
    explicit: Option<&Path>,
    cwd: &Path,
    environment: EnvLookup<'_>,
) -> Result<ConfigLocation, ConfigError> {
    if let Some(path) = explicit {
        return Ok(ConfigLocation { path: cwd.join(path), origin: ConfigOrigin::Named });
    }
    let local = [cwd.join("mcp.json"), cwd.join(".mcp.json")];
    let user = user_file(environment);
    let paths = || local.iter().chain(&user);
    let Some(path) = paths().find(|path| is_file(path)) else {
        return Err(ConfigError::NotFound { paths: paths().cloned().collect() });
    };
    let is_users = user.as_ref().is_some_and(|user| is_same_path(path, user));
    let origin = if is_users { ConfigOrigin::UserFolder } else { ConfigOrigin::WorkingFolder };
    Ok(ConfigLocation { path: path.clone(), origin })
}

/// Returns the path of the user's own file.
pub(crate) fn user_file(environment: EnvLookup<'_>) -> Option<PathBuf> {
    user_config_dir(environment).map(|directory| directory.join("bascule").join("mcp.json"))
}

/// The working folder may be the user's folder. A link to the user's file is another path: its relative paths start
/// elsewhere.
fn is_same_path(one: &Path, other: &Path) -> bool {
    match (canonical_entry(one), canonical_entry(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// Returns the absolute path of a file without links in its folders. The file itself may be a link.
pub(crate) fn canonical_entry(path: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(folder), Some(name)) => Ok(folder.canonicalize()?.join(name)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

// The XDG specification says to ignore relative paths.
fn user_config_dir(environment: EnvLookup<'_>) -> Option<PathBuf> {
    let absolute = |name| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))
}

// A pipe counts too, so anything but a directory.
fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_dir())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// Creates these files in a directory that is both `HOME` and the current one, and searches there.
    fn find_among(files: &[&str], explicit: Option<&str>) -> Result<String, String> {
        let folder = TempDir::new().unwrap();
        for file in files {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "{}").unwrap();
        }
        let home = folder.path().to_str().unwrap();
        let environment = |name: &str| (name == "HOME").then(|| home.to_owned());
        let found = find(explicit.map(Path::new), folder.path(), &environment);
        let shortened = |text: String| text.replace(home, "~");
        let found = found.map(|found| shortened(found.path.display().to_string()));
        found.map_err(|error| shortened(error.to_string()))
    }

    #[track_caller]
    fn check(files: &[&str], explicit: Option<&str>, expected: &str) {
        assert_eq!(find_among(files, explicit).as_deref(), Ok(expected));
    }

    #[test]
    fn explicit_path_precedes_current_directory_precedes_home() {
        let own = ".config/bascule/mcp.json";
        check(&["mcp.json", ".mcp.json", own], Some("other.json"), "~/other.json");
        check(&["mcp.json", ".mcp.json", own], None, "~/mcp.json");
        check(&[".mcp.json", own], None, "~/.mcp.json");
        check(&[own], None, "~/.config/bascule/mcp.json");
    }

    // req: SB-08
    #[test]
    fn only_files_of_the_working_folder_need_trust() {
        let folder = TempDir::new().unwrap();
        let own = folder.path().join("home/.config/bascule/mcp.json");
        fs::create_dir_all(own.parent().unwrap()).unwrap();
        fs::write(&own, "{}").unwrap();
        let home = folder.path().join("home").to_str().unwrap().to_owned();
        let environment = |name: &str| (name == "HOME").then(|| home.clone());
        let origin = |explicit: Option<&Path>, cwd: &Path| find(explicit, cwd, &environment).unwrap().origin;
        assert_eq!(origin(None, folder.path()), ConfigOrigin::UserFolder);
        assert_eq!(origin(None, own.parent().unwrap()), ConfigOrigin::UserFolder);
        std::os::unix::fs::symlink(&own, folder.path().join(".mcp.json")).unwrap();
        assert_eq!(origin(None, folder.path()), ConfigOrigin::WorkingFolder);
        assert_eq!(origin(Some(Path::new(".mcp.json")), folder.path()), ConfigOrigin::Named);
    }

    #[test]
    fn directories_are_skipped() {
        check(&["mcp.json/x", ".mcp.json"], None, "~/.mcp.json");
    }

    #[test]
    fn missing_file_error_lists_the_paths_and_an_example() {
        let expected = r#"no configuration file found; searched
  ~/mcp.json
  ~/.mcp.json
  ~/.config/bascule/mcp.json
use `--config FILE`, run `bascule init`, or create `mcp.json` with
  { "mcpServers": { "time": { "command": "uvx", "args": ["mcp-server-time"] } } }"#;
        assert_eq!(find_among(&[], None).unwrap_err(), expected);
    }

    #[test]
    fn xdg_config_home_precedes_home_unless_relative_or_empty() {
        let folder = |xdg: &'static str| {
            user_config_dir(&move |name: &str| match name {
                "XDG_CONFIG_HOME" => Some(xdg.into()),
                _ => Some("/home/me".into()),
            })
        };
        assert_eq!(folder("/xdg"), Some("/xdg".into()));
        assert_eq!(folder("xdg"), Some("/home/me/.config".into()));
        assert_eq!(folder(""), Some("/home/me/.config".into()));
        assert_eq!(user_config_dir(&|_| None), None);
    }
}
