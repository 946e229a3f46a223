//! Finds the installed programs and projects that a server runs, so that it can read them and little else of a home.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::project_secrets::open_regular;
use crate::secrets::Secrets;

/// Programs that version managers and installers keep in the home. They are readable and never writable.
const IN_HOME: [&str; 34] = [
    ".nvm",
    ".volta",
    ".fnm",
    ".local/share/fnm",
    ".local/state/fnm_multishells",
    ".nodenv",
    ".asdf",
    ".tool-versions",
    ".local/share/mise",
    ".config/mise/config.toml",
    ".proto/tools",
    ".proto/bin",
    ".pyenv",
    ".rbenv",
    ".sdkman/candidates",
    ".jenv",
    ".dotnet/dotnet",
    ".dotnet/host",
    ".dotnet/sdk",
    ".dotnet/shared",
    ".dotnet/tools",
    ".rustup/toolchains",
    ".rustup/settings.toml",
    ".cargo/bin",
    ".bun/bin",
    ".deno/bin",
    ".local/bin",
    ".local/lib",
    ".local/pipx",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/uv/python",
    ".local/share/uv/tools",
    ".nix-profile",
];

/// Version managers find their programs below `$HOME` unless a variable says otherwise. A server's home is another one.
const HOME_VARIABLES: [(&str, &str); 11] = [
    ("NVM_DIR", ".nvm"),
    ("VOLTA_HOME", ".volta"),
    ("NODENV_ROOT", ".nodenv"),
    ("ASDF_DATA_DIR", ".asdf"),
    ("MISE_DATA_DIR", ".local/share/mise"),
    ("MISE_CONFIG_DIR", ".config/mise"),
    ("PYENV_ROOT", ".pyenv"),
    ("RBENV_ROOT", ".rbenv"),
    ("RUSTUP_HOME", ".rustup"),
    ("PYTHONUSERBASE", ".local"),
    ("DOTNET_ROOT", ".dotnet"),
];

/// Returns the variables with which version managers find the programs of the user's real home.
pub fn toolchain_variables(home: &Path) -> Vec<(&'static str, OsString)> {
    let found = HOME_VARIABLES.iter().map(|(name, place)| (*name, home.join(place)));
    let has_user_packages = || home.join(".local/lib").is_dir();
    let found =
        found.filter(|(name, path)| path.exists() && (*name != "PYTHONUSERBASE" || has_user_packages()));
    found.map(|(name, path)| (name, path.into_os_string())).collect()
}

/// The homes, and the folders that a server may not read as a whole.
pub struct ToolchainSearch<'a> {
    pub homes: &'a [PathBuf],
    pub secrets: &'a Secrets,
}

impl ToolchainSearch<'_> {
    /// Returns the installation folders of a program and of the interpreter in its `#!` line. `search_path` finds the
    /// interpreter of `#!/usr/bin/env NAME`.
    pub fn program_folders(&self, program: &Path, search_path: &[PathBuf]) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        let interpreter = interpreter(program, search_path);
        if interpreter.is_some() {
            folders.extend(self.project_folders(program));
        }
        for program in [Some(program.to_path_buf()), interpreter].into_iter().flatten() {
            folders.extend(virtual_environment(&program));
            folders.extend(self.installation(&program));
            // A link in a `bin` folder may lead anywhere, and its program looks for libraries beside the link.
            folders.extend(program.parent().and_then(|folder| self.prefix(folder)));
        }
        folders
    }

    /// Returns the folders in the homes from which programs of `PATH` run, and those of version managers.
    pub fn home_folders(&self, search_path: &[PathBuf]) -> Vec<PathBuf> {
        let is_in_home = |folder: &&PathBuf| self.homes.iter().any(|home| folder.starts_with(home));
        let of_path = search_path.iter().filter(is_in_home);
        let of_path = of_path.map(|folder| self.prefix(folder).unwrap_or_else(|| folder.clone()));
        let managed = self.homes.iter().flat_map(|home| IN_HOME.iter().map(|place| home.join(place)));
        of_path.chain(managed).filter(|path| path.exists() && !self.is_broad(path)).collect()
    }

    /// Returns the folders that a script needs beside itself: its project, and the packages in folders above it.
    pub fn project_folders(&self, script: &Path) -> Vec<PathBuf> {
        const MARKERS: [&str; 9] = [
            "package.json",
            "pyproject.toml",
            "node_modules",
            "requirements.txt",
            "setup.py",
            "Cargo.toml",
            "go.mod",
            "deno.json",
            ".venv",
        ];
        let Some(real) = script.canonicalize().ok() else { return Vec::new() };
        let above: Vec<&Path> =
            real.ancestors().skip(1).take_while(|folder| !self.is_broad(folder)).collect();
        let is_root = |folder: &&&Path| MARKERS.iter().any(|marker| folder.join(marker).exists());
        let project = above.iter().find(is_root).or(above.first());
        // The script may itself be in a package.
        let around = above.iter().filter(|folder| folder.ends_with("node_modules"));
        let beside = above.iter().map(|folder| folder.join("node_modules")).filter(|folder| folder.is_dir());
        let packages = beside.chain(around.map(|folder| folder.to_path_buf()));
        match project {
            Some(project) => packages.chain([project.to_path_buf()]).collect(),
            // Only the script: the folder is the home, or shared.
            None => vec![real],
        }
    }

    /// The folder above a program's `bin`, which holds its libraries. If that folder also holds secrets, as with `~/bin`:
    /// the program's own folder. If that one does too: only the program.
    fn installation(&self, program: &Path) -> Option<PathBuf> {
        let real = program.canonicalize().ok()?;
        let folder = real.parent()?;
        let above = folder.parent().filter(|above| folder.ends_with("bin") && !self.is_broad(above));
        let installed = above.unwrap_or(folder);
        Some(if self.is_broad(installed) { real } else { installed.to_path_buf() })
    }

    /// The folder above a `bin` folder that has a `lib` folder too.
    fn prefix(&self, bin: &Path) -> Option<PathBuf> {
        let above = bin.parent().filter(|above| bin.ends_with("bin") && above.join("lib").is_dir())?;
        (!self.is_broad(above)).then(|| above.to_path_buf())
    }

    /// Returns true for a path in a home or in a folder that all programs share.
    pub fn is_private(&self, path: &Path) -> bool {
        self.homes.iter().chain(&crate::policy::shared_folders()).any(|folder| path.starts_with(folder))
    }

    /// Returns true for a folder that holds more than programs: the root, a home, a folder above one or with secrets, and
    /// the folders that all programs share.
    pub fn is_broad(&self, folder: &Path) -> bool {
        let holds_home = || self.homes.iter().any(|home| home.starts_with(folder));
        let is_shared = || crate::policy::shared_folders().iter().any(|shared| shared.starts_with(folder));
        folder.components().count() <= 1 || holds_home() || is_shared() || self.secrets.are_below(folder)
    }
}

/// Returns true for a file that interpreters run: its server reads it and never changes it.
pub fn is_program(file: &Path) -> bool {
    const ENDINGS: [&str; 16] = [
        "py", "pyz", "js", "mjs", "cjs", "ts", "mts", "cts", "tsx", "jsx", "sh", "rb", "jar", "dll", "php",
        "wasm",
    ];
    let ending = file.extension().unwrap_or_default().to_string_lossy();
    let Ok(metadata) = file.metadata() else { return false };
    let is_executable = || metadata.permissions().mode() & 0o111 != 0;
    metadata.is_file() && (ENDINGS.contains(&&*ending) || is_executable() || first_line(file).is_some())
}

/// The interpreter in a script's `#!` line. The file may have any content.
fn interpreter(script: &Path, search_path: &[PathBuf]) -> Option<PathBuf> {
    let line = first_line(script)?;
    let mut words = line.split_whitespace();
    let program = PathBuf::from(words.next()?);
    if program.file_name()? != "env" {
        return Some(program);
    }
    // A path after an option need not be a program.
    let name = words
        .find(|word| !word.starts_with('-') && !word.contains('='))
        .filter(|word| !word.contains('/'))?;
    search_path.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The text after `#!`.
fn first_line(script: &Path) -> Option<String> {
    // The kernel reads no further either.
    const MAX_FIRST_LINE: u64 = 256;
    let mut start = Vec::new();
    open_regular(script).ok()?.take(MAX_FIRST_LINE).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    std::str::from_utf8(line).ok().map(str::to_owned)
}

/// The folder of a Python virtual environment. Its interpreter is a link out of it; its libraries are in it.
fn virtual_environment(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?.parent()?;
    folder.join("pyvenv.cfg").is_file().then(|| folder.to_path_buf())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A home with files (path, content; `~` is the home) and links.
    struct Home {
        path: PathBuf,
        _folder: tempfile::TempDir,
    }

    impl Home {
        fn new(files: &[(&str, &str)], links: &[(&str, &str)]) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().canonicalize().unwrap();
            for (name, content) in files {
                fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
                fs::write(path.join(name), content.replace('~', path.to_str().unwrap())).unwrap();
            }
            for (from, to) in links {
                fs::create_dir_all(path.join(from).parent().unwrap()).unwrap();
                symlink(path.join(to), path.join(from)).unwrap();
            }
            Self { path, _folder: folder }
        }

        fn search<T>(&self, search: impl Fn(&ToolchainSearch<'_>) -> T) -> T {
            let homes = [self.path.clone()];
            search(&ToolchainSearch { homes: &homes, secrets: &Secrets::of_homes(&homes) })
        }

        fn program_folders(&self, program: &str) -> Vec<String> {
            let bin = [self.path.join("bin"), self.path.join("node/bin")];
            self.names(&self.search(|search| search.program_folders(&self.path.join(program), &bin)))
        }

        fn names(&self, paths: &[PathBuf]) -> Vec<String> {
            let short = |path: &PathBuf| path.strip_prefix(&self.path).unwrap_or(path).display().to_string();
            let mut names: Vec<String> = paths.iter().map(short).collect();
            names.sort();
            names.dedup();
            names
        }
    }

    // req: SB-04
    #[test]
    fn opens_installation_folder_of_program() {
        let check = |file: &str, expected: &[&str]| {
            assert_eq!(Home::new(&[(file, "\x7fELF")], &[]).program_folders(file), expected);
        };
        check("opt/tool/bin/server", &["opt/tool"]);
        check("opt/tool/server", &["opt/tool"]);
        check("bin/server", &["bin"]);
        check(".local/bin/server", &[".local/bin"]);
        check("server", &["server"]);
        check(".ssh/server", &[".ssh/server"]);
    }

    // req: SB-04
    #[test]
    fn opens_interpreter_and_virtual_environment_of_script() {
        let script = ("venv/bin/server", "#!~/venv/bin/python -I\nimport this");
        let python = ("python/3.11/bin/python3.11", "\x7fELF");
        let link = ("venv/bin/python", "python/3.11/bin/python3.11");
        let home = Home::new(&[script, python, ("venv/pyvenv.cfg", "")], &[link]);
        assert_eq!(home.program_folders("venv/bin/server"), ["python/3.11", "venv", "venv/bin"]);
        assert_eq!(home.program_folders("venv/bin/python"), ["python/3.11", "venv"]);
    }

    // req: SB-07
    #[test]
    fn opens_interpreter_that_env_finds() {
        let files =
            [("tools/x/cli.js", "#!/usr/bin/env node\n"), ("node/bin/node", "\x7fELF"), ("node/lib/x", "")];
        let home = Home::new(&files, &[("bin/server", "tools/x/cli.js")]);
        assert_eq!(home.program_folders("bin/server"), ["node", "tools/x"]);
    }

    // req: SB-07
    #[test]
    fn opens_project_of_script_and_packages_above_it() {
        let files = [
            ("repo/node_modules/dep/x.js", ""),
            ("repo/packages/it/package.json", ""),
            ("repo/packages/it/dist/index.js", ""),
            ("repo/notes.txt", ""),
            ("node_modules/@it/server/package.json", ""),
            ("node_modules/@it/server/index.js", ""),
            ("loose.py", ""),
        ];
        let home = Home::new(&files, &[]);
        let project =
            |script: &str| home.names(&home.search(|search| search.project_folders(&home.path.join(script))));
        assert_eq!(project("repo/packages/it/dist/index.js"), ["repo/node_modules", "repo/packages/it"]);
        assert_eq!(project("node_modules/@it/server/index.js"), ["node_modules", "node_modules/@it/server"]);
        assert_eq!(project("loose.py"), ["loose.py"], "the home is not a project");
    }

    // req: SB-07
    #[test]
    fn opens_folders_of_search_path_and_version_managers() {
        let files = [
            (".nvm/versions/node/v20/bin/node", ""),
            ("conda/bin/python", ""),
            ("conda/lib/x", ""),
            ("go/bin/tool", ""),
            ("go/pkg/private.go", ""),
            (".local/bin/x", ""),
        ];
        let home = Home::new(&files, &[]);
        let path: Vec<PathBuf> =
            ["conda/bin", "go/bin", ".local/bin", "missing/bin"].map(|folder| home.path.join(folder)).into();
        let found = home.names(&home.search(|search| search.home_folders(&path)));
        assert_eq!(found, [".local/bin", ".nvm", "conda", "go/bin"]);
    }

    // req: SB-07
    #[test]
    fn programs_are_known_by_ending_mode_or_first_line() {
        let home = Home::new(&[("a.py", ""), ("b", "#!/bin/sh\n"), ("c.db", "SQLite"), ("d", "text")], &[]);
        let programs = ["a.py", "b", "c.db", "d"].map(|name| is_program(&home.path.join(name)));
        assert_eq!(programs, [true, true, false, false]);
    }

    // req: SB-07
    #[test]
    fn names_version_managers_that_exist() {
        let home = Home::new(&[(".pyenv/version", "")], &[]);
        let found = toolchain_variables(&home.path);
        assert_eq!(found, [("PYENV_ROOT", home.path.join(".pyenv").into_os_string())]);
    }
}
