//! Finds the configuration file: an explicit path, else the default paths.

use std::path::{Path, PathBuf};

use super::ConfigError;
use super::expand::EnvLookup;

/// Returns the explicit path, else the first default path that exists.
///
/// An explicit path is not checked here: reading it reports what is wrong. An empty `cwd` gives relative paths.
pub fn find(explicit: Option<&Path>, cwd: &Path, environment: EnvLookup<'_>) -> Result<PathBuf, ConfigError> {
    if let Some(path) = explicit {
        return Ok(cwd.join(path));
    }
    let paths = default_paths(cwd, environment);
    match paths.iter().find(|path| is_file(path)) {
        Some(path) => Ok(path.clone()),
        None => Err(ConfigError::NotFound { paths }),
    }
}

fn default_paths(cwd: &Path, environment: EnvLookup<'_>) -> Vec<PathBuf> {
    let local = [cwd.join("mcp.json"), cwd.join(".mcp.json")];
    let user = user_config_dir(environment).map(|directory| directory.join("bascule").join("mcp.json"));
    local.into_iter().chain(user).collect()
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
        found.map(|path| shortened(path.display().to_string())).map_err(|error| shortened(error.to_string()))
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
use `--config FILE`, or create `mcp.json` with
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
