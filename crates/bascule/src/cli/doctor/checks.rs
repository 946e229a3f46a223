//! The checks that start no server.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bascule_sandbox::{Confinement, Policy, Profile, Secrets};

use super::DoctorFinding;
use crate::clients::{CLIENTS, ClientProgram, Machine, ProgramSearch, is_bascule};
use crate::command_output::command_output;
use crate::config::{
    ConfigLocation, LoadedConfig, ServerSettings, Settings, TransportSettings, find_executable,
};
use crate::control::SocketPath;
use crate::document::Document;
use crate::settings_file::SettingsFile;

/// A program of a package manager may load much before it answers.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

/// Programs that servers often need, and the way to get them.
const PROGRAMS: [(&str, &str); 6] = [
    ("node", "install Node.js 20 or later: https://nodejs.org"),
    ("npx", "install Node.js with npm: https://nodejs.org"),
    ("python3", "install Python 3.10 or later: https://www.python.org"),
    ("uv", "install uv: https://docs.astral.sh/uv"),
    ("uvx", "install uv: https://docs.astral.sh/uv"),
    ("docker", "install Docker: https://docs.docker.com"),
];

/// Checks the program, the kernel and the folder of the bridge.
pub(super) fn machine() -> Vec<DoctorFinding> {
    let program = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
    let mut findings =
        vec![DoctorFinding::ok("bascule", format!("{} at {program}", env!("CARGO_PKG_VERSION")))];
    findings.extend(kernel());
    findings.push(match crate::private_file::folder("tokens") {
        Ok(folder) => private_folder(&folder),
        Err(error) => DoctorFinding::fail(
            "data folder",
            format!("could not make the folder of tokens and trust: {error}"),
            "make ~/.local/share writable for you",
        ),
    });
    findings
}

fn kernel() -> Vec<DoctorFinding> {
    let homes = bascule_sandbox::homes();
    let policy = Policy::new(Profile::Standard, &homes, &Secrets::of_homes(&homes), Vec::new(), Vec::new());
    let confinement = Confinement::for_policy(&policy);
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = format!("Linux {}", release.trim());
    match confinement.missing.is_empty() {
        true => vec![DoctorFinding::ok("kernel", format!("{kernel} can confine servers"))],
        false => {
            let missing = confinement.missing.iter();
            missing
                .map(|missing| {
                    DoctorFinding::warn("kernel", format!("{kernel} lacks: {missing}"), kernel_fix(missing))
                })
                .collect()
        }
    }
}

fn kernel_fix(missing: &str) -> &'static str {
    if missing.contains("control group") {
        "start Bascule in a delegated group: `systemd-run --user --scope -p Delegate=yes bascule serve`"
    } else if missing.contains("Landlock") {
        "use Linux 6.12 or later with Landlock (`lsm=landlock,…` on the kernel's command line)"
    } else {
        "use Linux 5.9 or later, outside of a container that filters system calls"
    }
}

fn private_folder(folder: &Path) -> DoctorFinding {
    let mode = folder.metadata().map(|metadata| metadata.mode() & 0o777).unwrap_or_default();
    match mode & 0o077 {
        0 => DoctorFinding::ok("data folder", "private"),
        _ => DoctorFinding::fail(
            "data folder",
            format!("`{}` is open to other users (mode {mode:o})", folder.display()),
            format!("chmod 700 {}", folder.display()),
        ),
    }
}

/// Checks a valid configuration.
pub(super) fn configuration(location: &ConfigLocation, loaded: &LoadedConfig) -> Vec<DoctorFinding> {
    let path = location.path.display();
    let mut findings = programs(&loaded.settings.servers);
    findings.push(DoctorFinding::ok("configuration", format!("{path} is valid")));
    findings.extend(
        loaded
            .warnings
            .iter()
            .map(|warning| DoctorFinding::warn("configuration", warning.to_string(), "correct the file")),
    );
    findings.extend(file_mode(&location.path, &loaded.settings));
    findings.push(port(&location.path, &loaded.settings));
    findings
}

/// Secrets in a file that other users can read.
fn file_mode(path: &Path, settings: &Settings) -> Option<DoctorFinding> {
    let mode = path.metadata().ok()?.mode() & 0o777;
    let holds_values = settings.servers.iter().any(|server| match &server.transport {
        TransportSettings::Stdio { env, .. } => !env.is_empty(),
        TransportSettings::Remote { headers, .. } => !headers.is_empty(),
    });
    (mode & 0o044 != 0 && holds_values).then(|| {
        let message = format!(
            "other users can read `{}` (mode {mode:o}), and it has `env` or `headers`",
            path.display()
        );
        DoctorFinding::warn("permissions", message, format!("chmod 600 {}", path.display()))
    })
}

fn port(config: &Path, settings: &Settings) -> DoctorFinding {
    let address = settings.bridge.listen;
    let is_ours = || SocketPath::new(config).is_ok_and(|path| path.is_locked());
    match TcpListener::bind(address) {
        Ok(_) => DoctorFinding::ok("port", format!("{address} is free")),
        Err(_) if is_ours() => DoctorFinding::ok("port", format!("{address} is used by the running bridge")),
        Err(error) => DoctorFinding::warn(
            "port",
            format!("`bascule serve` could not listen on {address}: {error}"),
            format!(
                "bascule serve --listen {}:{}",
                address.ip(),
                address.port().checked_add(1).unwrap_or(7420)
            ),
        ),
    }
}

/// Looks for the common programs, and for those that servers need.
pub(super) fn programs(servers: &[ServerSettings]) -> Vec<DoctorFinding> {
    let needed: Vec<&str> = servers
        .iter()
        .filter_map(|server| match &server.transport {
            TransportSettings::Stdio { command, .. } if !command.contains('/') => Some(command.as_str()),
            _ => None,
        })
        .collect();
    let others = needed.iter().filter(|name| !PROGRAMS.iter().any(|(known, _)| known == *name));
    let others = others.map(|name| (*name, "install it, or write its path in the configuration"));
    let mut all: Vec<(&str, &str)> = PROGRAMS.into_iter().chain(others).collect();
    all.dedup();
    let login = ProgramSearch::from_login_shell();
    all.into_iter().filter_map(|(name, fix)| program(name, fix, needed.contains(&name), &login)).collect()
}

fn program(name: &str, fix: &str, is_needed: bool, login: &ProgramSearch) -> Option<DoctorFinding> {
    match (find_in_path(name), login.find(name)) {
        (Some(path), _) => Some(DoctorFinding::ok(name, describe_version(&path, is_needed))),
        (None, Some(path)) if is_needed => Some(DoctorFinding::fail(
            name,
            format!("only your login shell finds it, at {}", path.display()),
            format!("write `\"command\": \"{}\"` in the configuration", path.display()),
        )),
        (None, Some(path)) => {
            Some(DoctorFinding::ok(name, format!("{} (in your login shell)", path.display())))
        }
        (None, None) if is_needed => Some(DoctorFinding::fail(name, "not found, and a server needs it", fix)),
        (None, None) if name == "docker" => None,
        (None, None) => Some(DoctorFinding::ok(name, "not found; no server needs it")),
    }
}

/// Returns the way to get the program of a server that is not there.
pub(super) fn missing_program(server: &ServerSettings) -> Option<String> {
    let TransportSettings::Stdio { command, .. } = &server.transport else { return None };
    if find_executable(server).is_ok() {
        return None;
    }
    let known = PROGRAMS.iter().find(|(name, _)| name == command).map(|(_, fix)| (*fix).to_owned());
    Some(known.unwrap_or_else(|| format!("install `{command}`, or correct `command` in the configuration")))
}

fn find_in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Only known programs are run: an unknown one may do anything.
fn describe_version(path: &Path, is_needed: bool) -> String {
    let is_known = path.file_name().is_some_and(|name| PROGRAMS.iter().any(|(known, _)| *known == name));
    let mut command = Command::new(path);
    command.arg("--version");
    let output = if is_known { command_output(command, VERSION_TIMEOUT) } else { None };
    let version = output.and_then(|output| output.lines().next().map(str::to_owned)).unwrap_or_default();
    let needed = if is_needed { ", used by a server" } else { "" };
    format!("{} {version}{needed}", path.display())
}

/// Checks the entries of Bascule in the files of clients.
pub(super) fn clients() -> Vec<DoctorFinding> {
    let Ok(machine) = Machine::this(&crate::config::process_environment) else { return Vec::new() };
    CLIENTS
        .iter()
        .filter(|client| machine.has(client))
        .filter_map(|client| check_client(client, &machine))
        .collect()
}

fn check_client(client: &'static ClientProgram, machine: &Machine) -> Option<DoctorFinding> {
    let path = machine.user_file(client)?.path;
    let file = SettingsFile::read(&path).ok().filter(SettingsFile::exists)?;
    let document = match Document::parse(client.format, file.text()) {
        Ok(document) => document,
        Err(error) => {
            return Some(DoctorFinding::warn(
                client.title,
                format!("{}:{error}", path.display()),
                "correct the file",
            ));
        }
    };
    let servers = document.servers(client.place).ok()?;
    let (_, node) = servers.iter().find(|(name, node)| is_bascule(name, &node.to_json()))?;
    let words = crate::clients::command_line(&node.to_json()).unwrap_or_default();
    let config = words.iter().position(|word| word == "--config").and_then(|at| words.get(at + 1));
    let mut missing = words.first().into_iter().chain(config).filter(|path| !Path::new(path).exists());
    Some(match missing.next() {
        None => DoctorFinding::ok(client.title, "Bascule is installed"),
        Some(missing) => DoctorFinding::fail(
            client.title,
            format!("its entry names `{missing}`, which does not exist"),
            format!("bascule install {}", client.id),
        ),
    })
}
