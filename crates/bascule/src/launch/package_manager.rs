//! Recognises a package manager that installs a server at its first start, by the processes of the server's tree.
//!
//! `npx`, `uvx` and their like install a package, then start the server as their child. So one of them without such a child
//! is installing. `docker run` leaves the download to a service: there the last line on stderr shows it.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use bascule_sandbox::descendants_of;

/// A process as `/proc` shows it.
#[derive(Debug, Clone)]
struct TreeProcess {
    pid: u32,
    parent: u32,
    /// The command line. A program may have replaced its arguments by one title.
    words: Vec<String>,
    /// The npm script that the process belongs to: `postinstall`, say, or `npx` for the server itself.
    npm_script: Option<String>,
}

/// The part of a package manager in a start.
#[derive(Debug, PartialEq, Eq)]
enum Role {
    /// It installs, and starts nothing.
    Installer(String),
    /// It installs a package, and starts the server in it.
    Launcher(String),
    /// It starts a container, whose image a service may download first.
    Container(String),
}

/// Returns the package manager that is at work in the tree of a process, with its last output in mind. `None` if the
/// server itself runs.
pub(crate) fn find_installer(root: u32, last_output: &str) -> Option<String> {
    let pids = [root].into_iter().chain(descendants_of(root));
    let processes: Vec<TreeProcess> = pids.filter_map(read_process).collect();
    installer_among(&processes, last_output)
}

fn installer_among(processes: &[TreeProcess], last_output: &str) -> Option<String> {
    processes.iter().find_map(|process| match role_of(&process.words)? {
        Role::Installer(name) => Some(name),
        Role::Launcher(name) => (!has_server_below(process.pid, processes)).then_some(name),
        Role::Container(name) => is_download_of_image(last_output).then_some(name),
    })
}

/// Returns true if a descendant is neither a package manager nor a program that package managers run.
fn has_server_below(launcher: u32, processes: &[TreeProcess]) -> bool {
    let mut below = HashSet::from([launcher]);
    // Parents come before their children.
    let descendants =
        processes.iter().filter(|process| below.contains(&process.parent) && below.insert(process.pid));
    descendants.collect::<Vec<_>>().into_iter().any(|process| !is_part_of_installation(process))
}

fn is_part_of_installation(process: &TreeProcess) -> bool {
    const HELPERS: [&str; 20] = [
        "git",
        "ssh",
        "tar",
        "gzip",
        "curl",
        "wget",
        "node-gyp",
        "prebuild-install",
        "node-pre-gyp",
        "make",
        "cmake",
        "ninja",
        "cc",
        "c++",
        "gcc",
        "g++",
        "cc1",
        "cc1plus",
        "rustc",
        "cargo",
    ];
    let is_script = process.npm_script.as_deref().is_some_and(|script| script != "npx");
    let is_build = process.words.iter().any(|word| word.contains("/builds-v0/"));
    let program = program_of(&process.words);
    let is_helper = program.as_ref().is_none_or(|(name, _)| HELPERS.contains(&name.as_str()));
    let is_empty = process.words.is_empty();
    is_script || is_build || is_empty || (is_helper && program.is_some()) || role_of(&process.words).is_some()
}

fn role_of(words: &[String]) -> Option<Role> {
    let (name, arguments) = program_of(words)?;
    let (launches, installs): (&[&str], &[&str]) = match name.as_str() {
        "npx" | "pnpx" | "bunx" | "uvx" => return Some(Role::Launcher(name)),
        "npm" => (&["x"], &["install", "i", "ci", "add", "rebuild"]),
        "pnpm" => (&["dlx"], &["install", "i", "add"]),
        "yarn" => (&["dlx"], &["install", "add"]),
        "bun" => (&["x"], &["install", "i", "add"]),
        "uv" => (&["run"], &["pip", "sync", "add", "lock", "venv", "install", "python"]),
        "pipx" => (&["run"], &["install"]),
        "docker" | "podman" | "nerdctl" => (&[], &["pull"]),
        name if name.starts_with("pip") => (&[], &["install", "download", "wheel"]),
        _ => return None,
    };
    let is_container = matches!(name.as_str(), "docker" | "podman" | "nerdctl");
    // Options may precede the subcommand.
    arguments.iter().find_map(|argument| match argument.as_str() {
        "run" if is_container => Some(Role::Container(name.clone())),
        // `npx` and `uvx` run these.
        "exec" if name == "npm" => Some(Role::Launcher("npx".into())),
        "uvx" if name == "uv" => Some(Role::Launcher("uvx".into())),
        argument if launches.contains(&argument) => Some(Role::Launcher(name.clone())),
        argument if installs.contains(&argument) => Some(Role::Installer(name.clone())),
        _ => None,
    })
}

/// Returns the name of the program, or of the script or module that an interpreter runs, and the arguments after it.
fn program_of(words: &[String]) -> Option<(String, &[String])> {
    let (first, rest) = words.split_first()?;
    let name = file_name(first);
    let is_python = name.starts_with("python");
    if !is_python && !["node", "nodejs", "sh", "dash", "bash", "zsh"].contains(&name.as_str()) {
        return Some((name, rest));
    }
    let mut index = 0;
    while let Some(word) = rest.get(index) {
        match word.as_str() {
            "-m" if is_python => {
                return rest.get(index + 1).map(|module| (module.clone(), &rest[index + 2..]));
            }
            // Code instead of a script.
            "-c" | "-e" => return None,
            option if option.starts_with('-') => index += 1,
            script => return Some((script_name(script), &rest[index + 1..])),
        }
    }
    None
}

/// Returns the name of a script without what distributions add to it: `npx` for `npx-cli.js`.
fn script_name(path: &str) -> String {
    let name = file_name(path);
    let stem = [".js", ".cjs", ".mjs", ".py", ".sh"].iter().find_map(|end| name.strip_suffix(end));
    let stem = stem.unwrap_or(&name);
    stem.strip_suffix("-cli").unwrap_or(stem).to_owned()
}

fn file_name(path: &str) -> String {
    Path::new(path).file_name().map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Returns true for a line that container programs print while they download an image.
fn is_download_of_image(line: &str) -> bool {
    const PARTS: [&str; 12] = [
        "Unable to find image",
        ": Pulling from ",
        ": Pulling fs layer",
        ": Waiting",
        ": Downloading",
        ": Verifying Checksum",
        ": Download complete",
        ": Extracting",
        ": Pull complete",
        "Trying to pull ",
        "Getting image source ",
        "Copying blob ",
    ];
    PARTS.iter().any(|part| line.contains(part))
}

fn read_process(pid: u32) -> Option<TreeProcess> {
    let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).ok();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let stat = text(&read("stat")?);
    let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
    let words = command_words(&text(&read("cmdline")?));
    // Not readable for every process; then it counts as the server.
    let environment = read("environ").unwrap_or_default();
    let npm_script = environment
        .split(|byte| *byte == 0)
        .find_map(|variable| variable.strip_prefix(b"npm_lifecycle_event=").map(text));
    Some(TreeProcess { pid, parent, words, npm_script })
}

/// Splits a command line. A title has blanks where a command line has zero bytes.
fn command_words(line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split('\0').filter(|word| !word.is_empty()).collect();
    match *words {
        [title] => title.split_whitespace().map(str::to_owned).collect(),
        _ => words.into_iter().map(str::to_owned).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each process is `pid parent command line`; a command line may begin with `[npm script]`.
    fn check(processes: &[(u32, u32, &str)], expected: Option<&str>) {
        let process = |&(pid, parent, line): &(u32, u32, &str)| {
            let (script, line) = match line.strip_prefix('[').and_then(|line| line.split_once("] ")) {
                Some((script, line)) => (Some(script.to_owned()), line),
                None => (None, line),
            };
            let words = line.split_whitespace().map(str::to_owned).collect();
            TreeProcess { pid, parent, words, npm_script: script }
        };
        let processes: Vec<TreeProcess> = processes.iter().map(process).collect();
        assert_eq!(installer_among(&processes, "").as_deref(), expected, "{processes:#?}");
    }

    // req: US-02
    #[test]
    fn launcher_without_server_installs() {
        for (line, name) in [
            ("npm exec some-server", "npx"),
            ("node /usr/bin/npx -y some-server", "npx"),
            ("/usr/bin/node --no-warnings /lib/npm/bin/npx-cli.js -y some-server", "npx"),
            ("/home/u/.local/bin/uvx some-server", "uvx"),
            ("uv tool uvx some-server", "uvx"),
            ("uv --quiet tool run some-server", "uv"),
            ("uv run server.py", "uv"),
            ("python3 /usr/bin/pipx run some-server", "pipx"),
            ("python3 -m pipx run some-server", "pipx"),
            ("bunx some-server", "bunx"),
            ("node /lib/corepack/dist/pnpm.js dlx some-server", "pnpm"),
            ("node /opt/yarn.js dlx some-server", "yarn"),
            ("/bin/sh ./npx some-server", "npx"),
        ] {
            check(&[(1, 0, "/proc/self/exe __jail"), (2, 1, line)], Some(name));
            check(&[(1, 0, "/proc/self/exe __jail"), (2, 1, line), (3, 2, "node /cache/some-server")], None);
            check(&[(2, 0, line), (3, 2, "sh -c some-server")], None);
        }
    }

    // req: US-02
    #[test]
    fn scripts_and_builds_of_packages_are_part_of_the_installation() {
        let npx = (2, 1, "npm exec some-server");
        check(
            &[npx, (3, 2, "[postinstall] sh -c node install.js"), (4, 3, "[postinstall] node install.js")],
            Some("npx"),
        );
        check(&[npx, (3, 2, "[npx] sh -c some-server"), (4, 3, "[npx] node /cache/some-server")], None);
        check(&[npx, (3, 2, "git clone x"), (4, 3, "ssh host")], Some("npx"));
        let uv = (2, 1, "uv tool uvx some-server");
        check(&[uv, (3, 2, "/cache/builds-v0/.tmp1/bin/python -c x"), (4, 3, "gcc x.c")], Some("uvx"));
        check(&[uv, (3, 2, "/cache/archive-v0/x/bin/python /cache/archive-v0/x/bin/some-server")], None);
    }

    // req: US-02
    #[test]
    fn installation_within_a_script_counts() {
        check(&[(1, 0, "sh start.sh"), (2, 1, "npm install")], Some("npm"));
        check(&[(1, 0, "node server.js"), (2, 1, "python3 -m pip install x")], Some("pip"));
        check(&[(1, 0, "sh start.sh"), (2, 1, "/venv/bin/python /venv/bin/pip3 install x")], Some("pip3"));
        check(&[(1, 0, "docker pull x")], Some("docker"));
        for server in
            ["node server.js", "npm start", "npm run serve", "uvicorn x", "python -m pipeline", "sh -c x", ""]
        {
            check(&[(1, 0, server)], None);
        }
    }

    // req: US-02
    #[test]
    fn container_installs_while_it_prints_so() {
        let words = ["docker", "run", "-i", "image"].map(str::to_owned).to_vec();
        let docker = [TreeProcess { pid: 1, parent: 0, words, npm_script: None }];
        let line = "Unable to find image 'image:latest' locally";
        assert_eq!(installer_among(&docker, line).as_deref(), Some("docker"));
        assert_eq!(installer_among(&docker, "a1b2c3: Pull complete").as_deref(), Some("docker"));
        assert_eq!(installer_among(&docker, "Status: Downloaded newer image for image:latest"), None);
    }

    // req: US-02
    #[test]
    fn reads_titles_and_command_lines() {
        assert_eq!(command_words("npm exec some-server\0\0\0"), ["npm", "exec", "some-server"]);
        assert_eq!(command_words("node\0my file.js\0"), ["node", "my file.js"]);
        let own = read_process(std::process::id()).unwrap();
        assert!(!own.words.is_empty() && own.parent > 0, "{own:?}");
    }
}
