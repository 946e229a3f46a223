//! Finds the configuration file.

use std::path::{Path, PathBuf};

use super::ConfigError;
use super::expand::Environment;

/// The file to use: the one that was named, else the first there is in the usual places.
///
/// A named file need not exist: that is for reading it to say. Where `cwd` is empty, results are relative.
pub fn find(
    explicit: Option<&Path>,
    cwd: &Path,
    environment: Environment<'_>,
) -> Result<PathBuf, ConfigError> {
    if let Some(path) = explicit {
        return Ok(cwd.join(path));
    }
    let places = usual_places(cwd, environment);
    match places.iter().find(|place| is_file(place)) {
        Some(place) => Ok(place.clone()),
        None => Err(ConfigError::NotFound { places }),
    }
}

fn usual_places(cwd: &Path, environment: Environment<'_>) -> Vec<PathBuf> {
    let here = [cwd.join("mcp.json"), cwd.join(".mcp.json")];
    let own = user_folder(environment).map(|folder| folder.join("bascule").join("mcp.json"));
    here.into_iter().chain(own).collect()
}

// The XDG specification wants relative paths ignored.
fn user_folder(environment: Environment<'_>) -> Option<PathBuf> {
    let absolute = |name| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))
}

// A pipe counts as well: whatever can be opened and is no folder.
fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_dir())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// Files that are there, relative to a folder that is both `HOME` and the current one; and the one found.
    fn found(files: &[&str], explicit: Option<&str>) -> Result<String, String> {
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
        assert_eq!(found(files, explicit).as_deref(), Ok(expected));
    }

    #[test]
    fn the_named_file_comes_first_then_here_then_home() {
        let own = ".config/bascule/mcp.json";
        check(&["mcp.json", ".mcp.json", own], Some("other.json"), "~/other.json");
        check(&["mcp.json", ".mcp.json", own], None, "~/mcp.json");
        check(&[".mcp.json", own], None, "~/.mcp.json");
        check(&[own], None, "~/.config/bascule/mcp.json");
    }

    #[test]
    fn a_folder_of_that_name_is_passed_over() {
        check(&["mcp.json/x", ".mcp.json"], None, "~/.mcp.json");
    }

    #[test]
    fn where_there_is_none_the_places_are_listed_with_an_example() {
        let expected = r#"found no configuration; looked for
  ~/mcp.json
  ~/.mcp.json
  ~/.config/bascule/mcp.json
name one with `--config FILE`, or start with
  { "mcpServers": { "time": { "command": "uvx", "args": ["mcp-server-time"] } } }"#;
        assert_eq!(found(&[], None).unwrap_err(), expected);
    }

    #[test]
    fn the_configuration_home_goes_before_home_unless_it_is_relative_or_empty() {
        let folder = |xdg: &'static str| {
            user_folder(&move |name: &str| match name {
                "XDG_CONFIG_HOME" => Some(xdg.into()),
                _ => Some("/home/me".into()),
            })
        };
        assert_eq!(folder("/xdg"), Some("/xdg".into()));
        assert_eq!(folder("xdg"), Some("/home/me/.config".into()));
        assert_eq!(folder(""), Some("/home/me/.config".into()));
        assert_eq!(user_folder(&|_| None), None);
    }
}
