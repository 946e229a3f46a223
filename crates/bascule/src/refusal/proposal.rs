//! Writes the entries `sandbox` and `limits` that would allow what was refused.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::config::{CustomProfile, HomeAccess, NetworkAccess, Sandbox, ServerSettings, existing_arguments};

/// The permissions to add to those that a server has.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Additions {
    pub(crate) read: BTreeSet<PathBuf>,
    pub(crate) write: BTreeSet<PathBuf>,
    pub(crate) network: bool,
    pub(crate) unix_sockets: bool,
    /// Changes of file attributes, which only the profile `standard` permits.
    pub(crate) attributes: bool,
    pub(crate) memory: bool,
    pub(crate) processes: bool,
    pub(crate) open_files: bool,
}

/// The members of a JSON object, in order.
type Members = Vec<(&'static str, Value)>;

impl Additions {
    /// Returns the keys of a server's entry that must change, with their whole new values.
    pub(crate) fn entries(&self, settings: &ServerSettings) -> Value {
        let to_object = |members: Members| -> Value {
            members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
        };
        self.changes(settings)
            .into_iter()
            .map(|(key, members)| (key.to_owned(), to_object(members)))
            .collect()
    }

    /// Returns the entries as lines of the configuration file.
    pub(crate) fn lines(&self, settings: &ServerSettings) -> Vec<String> {
        let changes = self.changes(settings);
        changes.iter().map(|(key, members)| format!("\"{key}\": {}", inline(members))).collect()
    }

    fn changes(&self, settings: &ServerSettings) -> Vec<(&'static str, Members)> {
        let sandbox = self.sandbox(settings).unwrap_or_default();
        let changes = [("sandbox", sandbox), ("limits", self.limits(settings))];
        changes.into_iter().filter(|(_, members)| !members.is_empty()).collect()
    }

    fn sandbox(&self, settings: &ServerSettings) -> Option<Members> {
        let mut rules = Rules::from_settings(settings)?;
        let before = rules.clone();
        let sorted = |old: &[PathBuf], new: &BTreeSet<PathBuf>| {
            let missing = new.iter().filter(|path| !old.contains(path)).cloned();
            old.iter().cloned().chain(missing).collect()
        };
        rules.read = sorted(&rules.read, &self.read);
        rules.write = sorted(&rules.write, &self.write);
        rules.has_network |= self.network;
        rules.has_unix_sockets |= self.unix_sockets;
        if self.attributes {
            rules.profile = CustomProfile::Standard;
        }
        rules.processes = rules.processes.map(|max| if self.processes { max * 2 } else { max });
        rules.files = rules.files.map(|max| if self.open_files { max * 2 } else { max });
        (rules != before).then(|| rules.members())
    }

    /// A limit in `sandbox` replaces the one in `limits`.
    fn limits(&self, settings: &ServerSettings) -> Members {
        let limits = &settings.limits;
        let (processes, files) = match settings.sandbox {
            Sandbox::Custom { processes, files, .. } => (processes, files),
            _ => (None, None),
        };
        let memory = self.memory.then(|| ("maxMemoryMb", json!(limits.max_memory_mb.saturating_mul(2))));
        let doubled = |is_wanted: bool, replaced: Option<u32>, max: Option<u32>| {
            max.filter(|_| is_wanted && replaced.is_none()).map(|max| json!(max.saturating_mul(2)))
        };
        let processes = doubled(self.processes, processes, limits.max_processes);
        let files = doubled(self.open_files, files, limits.max_open_files);
        let others = [("maxProcesses", processes), ("maxOpenFiles", files)];
        memory.into_iter().chain(others.into_iter().filter_map(|(key, value)| Some((key, value?)))).collect()
    }
}

/// The rules of a sandbox, as the object of the configuration names them.
#[derive(Clone, PartialEq)]
struct Rules {
    profile: CustomProfile,
    home: HomeAccess,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    has_network: bool,
    has_unix_sockets: bool,
    processes: Option<u32>,
    files: Option<u32>,
}

impl Rules {
    /// Returns `None` for a server that is not confined.
    fn from_settings(settings: &ServerSettings) -> Option<Self> {
        let standard = Self {
            profile: CustomProfile::Standard,
            home: HomeAccess::Own,
            read: Vec::new(),
            write: Vec::new(),
            has_network: true,
            has_unix_sockets: false,
            processes: None,
            files: None,
        };
        match settings.sandbox.clone() {
            Sandbox::Off => None,
            Sandbox::Standard => Some(standard),
            Sandbox::Strict => Some(Self {
                profile: CustomProfile::Strict,
                home: HomeAccess::None,
                // The object does not grant them by itself.
                read: existing_arguments(settings),
                has_network: false,
                ..standard
            }),
            Sandbox::Custom { profile, home, read, write, network, unix_sockets, processes, files } => {
                Some(Self {
                    profile,
                    home,
                    read,
                    write,
                    has_network: network == NetworkAccess::Full,
                    has_unix_sockets: unix_sockets,
                    processes,
                    files,
                })
            }
        }
    }

    /// Leaves out what is the default.
    fn members(&self) -> Members {
        let home = match self.home {
            HomeAccess::Own => None,
            HomeAccess::User => Some(json!("user")),
            HomeAccess::None => Some(json!("none")),
        };
        let paths = |paths: &[PathBuf]| (!paths.is_empty()).then(|| json!(paths));
        let members = [
            ("profile", (self.profile == CustomProfile::Standard).then(|| json!("standard"))),
            ("home", home),
            ("read", paths(&self.read)),
            ("write", paths(&self.write)),
            ("network", (!self.has_network).then(|| json!("none"))),
            ("unixSockets", self.has_unix_sockets.then_some(Value::Bool(true))),
            ("processes", self.processes.map(|max| json!(max))),
            ("files", self.files.map(|max| json!(max))),
        ];
        members.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

/// Writes an object on one line, with spaces as in the documentation.
fn inline(members: &Members) -> String {
    let write = |value: &Value| match value {
        Value::Array(values) => {
            format!("[{}]", values.iter().map(Value::to_string).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    };
    let members: Vec<String> =
        members.iter().map(|(key, value)| format!("\"{key}\": {}", write(value))).collect();
    format!("{{ {} }}", members.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing::server;

    fn check(entry: &str, change: impl FnOnce(&mut Additions), expected: &[&str]) {
        let mut additions = Additions::default();
        change(&mut additions);
        assert_eq!(additions.lines(&server(entry)), expected);
    }

    fn write(additions: &mut Additions) {
        additions.write.insert("/data".into());
    }

    // req: SB-09
    #[test]
    fn extends_each_profile() {
        check(r#"{"command": "x"}"#, write, &[r#""sandbox": { "profile": "standard", "write": ["/data"] }"#]);
        check(
            r#"{"command": "x", "args": ["/usr"], "sandbox": "strict"}"#,
            write,
            &[r#""sandbox": { "home": "none", "read": ["/usr"], "write": ["/data"], "network": "none" }"#],
        );
        check(r#"{"command": "x", "sandbox": "off"}"#, write, &[]);
        check(
            r#"{"command": "x", "sandbox": {"write": ["/a"], "network": "none", "files": 5}}"#,
            |additions| {
                write(additions);
                (additions.network, additions.unix_sockets, additions.open_files) = (true, true, true);
            },
            &[r#""sandbox": { "write": ["/a", "/data"], "unixSockets": true, "files": 10 }"#],
        );
    }

    // req: SB-09
    #[test]
    fn raises_limits() {
        check(
            r#"{"command": "x", "limits": {"maxMemoryMb": 100}}"#,
            |additions| additions.memory = true,
            &[r#""limits": { "maxMemoryMb": 200 }"#],
        );
        check(r#"{"command": "x"}"#, |_| {}, &[]);
    }
}
