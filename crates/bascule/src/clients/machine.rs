//! Finds the files of the clients on a machine.

use std::path::{Path, PathBuf};

use super::table::{Base, ClientProgram, FilePlace, Os, ProjectFile};
use crate::config::EnvLookup;

/// A machine: its system, its variables and the working folder. Arguments, so that tests need no other machine.
pub(crate) struct Machine<'a> {
    pub(crate) os: Os,
    pub(crate) environment: EnvLookup<'a>,
    pub(crate) folder: PathBuf,
}

/// A file of a client.
#[derive(Debug, Clone)]
pub(crate) struct ClientFile {
    /// The client in whose form the file is written.
    pub(crate) form: &'static ClientProgram,
    pub(crate) path: PathBuf,
}

impl<'a> Machine<'a> {
    pub(crate) fn this(environment: EnvLookup<'a>) -> std::io::Result<Self> {
        let os = match std::env::consts::OS {
            "macos" => Os::Mac,
            "windows" => Os::Windows,
            _ => Os::Linux,
        };
        Ok(Self { os, environment, folder: std::env::current_dir()? })
    }

    /// Returns the user's file of a client: the one that exists, else the one whose folder exists, else the first.
    pub(crate) fn user_file(&self, client: &'static ClientProgram) -> Option<ClientFile> {
        let paths = self.user_paths(client);
        let by_folder = || paths.iter().find(|path| path.parent().is_some_and(Path::is_dir));
        let path = paths.iter().find(|path| path.exists()).or_else(by_folder).or(paths.first())?;
        Some(ClientFile { form: client, path: path.clone() })
    }

    /// Returns the file of a client in the working folder, if the client has one.
    pub(crate) fn project_file(&self, client: &'static ClientProgram) -> Option<ClientFile> {
        match client.project {
            ProjectFile::None => None,
            ProjectFile::Of(id) => self.project_file(ClientProgram::by_id(id)?),
            ProjectFile::Own(names) => {
                let paths: Vec<PathBuf> = names.iter().map(|name| self.folder.join(name)).collect();
                let path = paths.iter().find(|path| path.exists()).or(paths.first())?;
                Some(ClientFile { form: client, path: path.clone() })
            }
        }
    }

    /// Returns true if the client has left files or folders here.
    pub(crate) fn has(&self, client: &ClientProgram) -> bool {
        let roots = [self.base(Base::Home), self.base(Base::Config), self.base(Base::Roaming)];
        let is_own_folder = |path: &PathBuf| {
            path.parent()
                .is_some_and(|folder| folder.is_dir() && !roots.iter().flatten().any(|root| root == folder))
        };
        let mut folders = client.folders.iter().filter_map(|place| self.resolve(place));
        folders.any(|folder| folder.is_dir())
            || self.user_paths(client).iter().any(|path| path.exists() || is_own_folder(path))
    }

    fn user_paths(&self, client: &ClientProgram) -> Vec<PathBuf> {
        let is_named = |place: &&FilePlace| matches!(place.base, Base::Variable(_));
        let named: Vec<PathBuf> =
            client.user_files.iter().filter(is_named).filter_map(|place| self.resolve(place)).collect();
        match named.is_empty() {
            true => client.user_files.iter().filter_map(|place| self.resolve(place)).collect(),
            false => named,
        }
    }

    fn resolve(&self, place: &FilePlace) -> Option<PathBuf> {
        let is_here = place.os == Os::Any || place.os == self.os;
        self.base(place.base).filter(|_| is_here).map(|base| base.join(place.path))
    }

    fn base(&self, base: Base) -> Option<PathBuf> {
        let absolute =
            |name: &str| (self.environment)(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || absolute(if self.os == Os::Windows { "USERPROFILE" } else { "HOME" });
        match base {
            Base::Home => home(),
            Base::Config => absolute("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config"))),
            Base::Roaming => absolute("APPDATA"),
            Base::Variable(name) => absolute(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::table::CLIENTS;
    use super::*;

    fn path_on(os: Os, variables: &[(&str, &str)], id: &str) -> String {
        let environment =
            |name: &str| variables.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
        let machine = Machine { os, environment: &environment, folder: "/project".into() };
        machine.user_file(ClientProgram::by_id(id).unwrap()).unwrap().path.display().to_string()
    }

    // req: US-04
    #[test]
    fn finds_the_users_files_of_each_system() {
        let home = [("HOME", "/nowhere/me")];
        assert_eq!(
            path_on(Os::Mac, &home, "claude-desktop"),
            "/nowhere/me/Library/Application Support/Claude/claude_desktop_config.json"
        );
        assert_eq!(
            path_on(Os::Linux, &home, "claude-desktop"),
            "/nowhere/me/.config/Claude/claude_desktop_config.json"
        );
        let windows = [("USERPROFILE", "/nowhere/me"), ("APPDATA", "/nowhere/me/AppData/Roaming")];
        assert_eq!(path_on(Os::Windows, &windows, "zed"), "/nowhere/me/AppData/Roaming/Zed/settings.json");
        assert_eq!(path_on(Os::Windows, &windows, "cursor"), "/nowhere/me/.cursor/mcp.json");
        for client in &CLIENTS {
            path_on(Os::Linux, &home, client.id);
            path_on(Os::Mac, &home, client.id);
            path_on(Os::Windows, &windows, client.id);
        }
    }

    // req: US-04
    #[test]
    fn variables_move_the_files() {
        let moved = [
            ("HOME", "/nowhere/me"),
            ("XDG_CONFIG_HOME", "/nowhere/xdg"),
            ("CODEX_HOME", "/nowhere/codex"),
            ("CLAUDE_CONFIG_DIR", "/nowhere/claude"),
        ];
        assert_eq!(path_on(Os::Linux, &moved, "codex"), "/nowhere/codex/config.toml");
        assert_eq!(path_on(Os::Linux, &moved, "claude-code"), "/nowhere/claude/.claude.json");
        assert_eq!(path_on(Os::Linux, &moved, "goose"), "/nowhere/xdg/goose/config.yaml");
        assert_eq!(path_on(Os::Mac, &moved, "goose"), "/nowhere/me/.config/goose/config.yaml");
    }

    // req: US-04
    #[test]
    fn prefers_the_place_that_exists() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap().to_owned();
        let environment = |name: &str| (name == "HOME").then(|| home.clone());
        let machine = Machine { os: Os::Linux, environment: &environment, folder: folder.path().into() };
        let desktop = ClientProgram::by_id("claude-desktop").unwrap();
        assert!(!machine.has(desktop) && !machine.has(ClientProgram::by_id("claude-code").unwrap()));
        fs::create_dir_all(folder.path().join(".config/claude")).unwrap();
        assert!(machine.has(desktop));
        let path = |client| machine.user_file(client).unwrap().path;
        assert_eq!(path(desktop), folder.path().join(".config/claude/claude_desktop_config.json"));
        let opencode = ClientProgram::by_id("opencode").unwrap();
        fs::create_dir_all(folder.path().join(".config/opencode")).unwrap();
        fs::write(folder.path().join(".config/opencode/opencode.jsonc"), "{}").unwrap();
        assert_eq!(path(opencode), folder.path().join(".config/opencode/opencode.jsonc"));
        let copilot = machine.project_file(ClientProgram::by_id("copilot").unwrap()).unwrap();
        assert_eq!((copilot.form.id, copilot.path), ("vscode", folder.path().join(".vscode/mcp.json")));
        assert!(machine.project_file(desktop).is_none());
    }
}
