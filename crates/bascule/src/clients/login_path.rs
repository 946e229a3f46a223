//! Finds programs as a login shell does.
//!
//! Version managers extend PATH in the files of the shell. A desktop program does not read them, and so does not find
//! `npx` or `uvx` by name.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::command_output::command_output;

/// The files of a shell may do anything.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Separates the answer from the greetings of a shell.
const MARK: &str = "bascule-path:";
/// Folders that every program has in its PATH.
const SYSTEM: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// The folders in which programs are searched.
#[derive(Debug, Clone)]
pub(crate) struct ProgramSearch(Vec<PathBuf>);

impl ProgramSearch {
    /// Asks the user's login shell, and adds the own PATH.
    pub(crate) fn from_login_shell() -> Self {
        let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
        let path = ask_shell(Path::new(&shell), TIMEOUT).unwrap_or_default();
        let own = std::env::var_os("PATH").unwrap_or_default();
        let mut folders: Vec<PathBuf> =
            std::env::split_paths(&path).chain(std::env::split_paths(&own)).collect();
        folders.retain(|folder| folder.is_absolute());
        Self(folders)
    }

    #[cfg(test)]
    pub(crate) fn in_folders(folders: &[&Path]) -> Self {
        Self(folders.iter().map(|folder| folder.to_path_buf()).collect())
    }

    /// Returns the absolute path of a program that is given by name.
    pub(crate) fn find(&self, program: &str) -> Option<PathBuf> {
        let mut paths = self.0.iter().map(|folder| folder.join(program));
        paths.find(|path| is_executable(path))
    }

    /// Returns the folder that a script needs in its PATH to find its interpreter beside it.
    pub(crate) fn folder_for_script(program: &Path) -> Option<&Path> {
        let folder = program.parent()?;
        let is_system = SYSTEM.iter().any(|system| Path::new(system) == folder);
        let start = std::fs::read(program).ok()?;
        (!is_system && start.starts_with(b"#!/usr/bin/env ")).then_some(folder)
    }

    /// Returns true if every program finds this one by its name.
    pub(crate) fn is_in_system_folder(program: &str) -> bool {
        SYSTEM.iter().any(|folder| is_executable(&Path::new(folder).join(program)))
    }
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Runs the shell in a session of its own: an interactive shell would take the terminal.
fn ask_shell(shell: &Path, timeout: Duration) -> Option<String> {
    let script = format!("printf '\\n{MARK}%s\\n' \"$PATH\"");
    let mut command = Command::new("setsid");
    command.arg(shell).args(["-l", "-i", "-c", &script]);
    let output = command_output(command, timeout).or_else(|| {
        let mut command = Command::new(shell);
        command.args(["-l", "-c", &script]);
        command_output(command, timeout)
    });
    read_answer(&output?)
}

fn read_answer(output: &str) -> Option<String> {
    output.lines().rev().find_map(|line| line.strip_prefix(MARK)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write_program(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    // req: US-04
    #[test]
    fn asks_a_noisy_shell() {
        let folder = tempfile::tempdir().unwrap();
        let shell = folder.path().join("shell");
        write_program(
            &shell,
            "#!/bin/sh\necho welcome\nPATH=/extra/bin:$PATH\nfor script; do :; done\neval \"$script\"\necho bye\n",
        );
        let path = ask_shell(&shell, Duration::from_secs(60)).unwrap();
        assert!(path.starts_with("/extra/bin:"), "{path}");
    }

    // req: US-04
    #[test]
    fn gives_up_on_a_shell_that_hangs() {
        let folder = tempfile::tempdir().unwrap();
        let shell = folder.path().join("shell");
        write_program(&shell, "#!/bin/sh\nexec sleep 600\n");
        assert_eq!(ask_shell(&shell, Duration::from_millis(1)), None);
    }

    // req: US-04
    #[test]
    fn finds_programs_and_the_folders_of_scripts() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("npx");
        write_program(&program, "#!/usr/bin/env node\n");
        fs::write(folder.path().join("text"), "").unwrap();
        let search = ProgramSearch::in_folders(&[Path::new("/nowhere"), folder.path()]);
        assert_eq!(search.find("npx").as_ref(), Some(&program));
        assert_eq!(search.find("text"), None);
        assert_eq!(ProgramSearch::folder_for_script(&program), Some(folder.path()));
        assert_eq!(ProgramSearch::folder_for_script(Path::new("/bin/sh")), None);
        assert!(ProgramSearch::is_in_system_folder("sh") && !ProgramSearch::is_in_system_folder("no-such"));
    }
}
