//! Compares a configuration with the one that its user has trusted: which programs it runs, and how they are confined.
//!
//! Pure: `trust_store` keeps the records, and the command line asks the user. Keys that are not known to be harmless are
//! compared as a whole, so that a new key is not forgotten here.

mod display;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use bascule_bus::BusUrl;
use jsonc_parser::ast;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::settings::{
    Authentication, BridgeSettings, Isolation, ServerSettings, SessionSharing, Settings, TransportSettings,
};
use crate::hexadecimal::sha256;
use display::{hide_literals, join, mention_omissions, show, show_command, show_sandbox};

/// Keys of a server that run no other program and do not lower its confinement. `limits` and the filters are compared by
/// their meaning.
const HARMLESS_SERVER_KEYS: [&str; 19] = [
    "allowedTools",
    "cancelGraceMs",
    "deniedTools",
    "disabled",
    "idleStopMs",
    "installTimeoutMs",
    "isolation",
    "keepAliveMs",
    "limits",
    "maxRetries",
    "maxSessions",
    "poolSize",
    "reconnectBackoffMs",
    "reconnectJitter",
    "session",
    "start",
    "startTimeoutMs",
    "timeoutMs",
    "tools",
];
/// Keys of a server that have a field in [`ServerSummary`], and `type`, which follows from them.
const COMPARED_SERVER_KEYS: [&str; 9] =
    ["args", "command", "cwd", "env", "envFile", "headers", "sandbox", "type", "url"];
/// Keys of `bascule.bus` that reach no other bus and prove nothing to it.
const HARMLESS_BUS_KEYS: [&str; 4] = ["agentTimeoutMs", "maxMessageBytes", "prefetch", "timeoutMs"];
/// Keys of `bascule` that are harmless or have a field in [`BridgeSummary`].
const KNOWN_BRIDGE_KEYS: [&str; 10] = [
    "allowedHosts",
    "allowedOrigins",
    "auth",
    "bus",
    "listen",
    "maxMessageBytes",
    "scripts",
    "sessionIdleMs",
    "show",
    "tokens",
];

/// The parts of a configuration that its user trusts. Values are those of the file, before variables are expanded: the
/// environment belongs to the user.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TrustSummary {
    servers: BTreeMap<String, ServerSummary>,
    bridge: BridgeSummary,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ServerSummary {
    /// The command and its arguments. Empty for a remote server.
    command: Vec<String>,
    cwd: Option<String>,
    env: BTreeMap<String, HiddenValue>,
    /// `None` in records of versions that did not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    env_file: Option<String>,
    url: Option<HiddenValue>,
    headers: BTreeMap<String, HiddenValue>,
    sandbox: Value,
    /// `None` means unlimited.
    memory_mb: u32,
    processes: Option<u32>,
    open_files: Option<u32>,
    home_mb: Option<u32>,
    /// `None` allows all.
    allowed_tools: Option<BTreeSet<String>>,
    denied_tools: BTreeSet<String>,
    is_per_call: bool,
    is_per_client: bool,
    /// The digests of all other keys.
    other: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BridgeSummary {
    address: IpAddr,
    needs_token: bool,
    /// The digests of the tokens.
    tokens: BTreeSet<String>,
    hosts: BTreeSet<String>,
    origins: BTreeSet<String>,
    /// `None` without a bus, and in records of versions that did not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bus: Option<BusSummary>,
    other: BTreeMap<String, String>,
}

/// The bus whose agents can call the tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BusSummary {
    url: Option<HiddenValue>,
    agent: Option<String>,
    /// The digests of all other keys that are not harmless.
    other: BTreeMap<String, String>,
}

/// A value that may be secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HiddenValue {
    /// The value with `***` instead of everything except variables.
    shown: String,
    digest: String,
}

impl Default for BridgeSummary {
    fn default() -> Self {
        Self {
            address: Ipv4Addr::LOCALHOST.into(),
            needs_token: true,
            tokens: BTreeSet::new(),
            hosts: BTreeSet::new(),
            origins: BTreeSet::new(),
            bus: None,
            other: BTreeMap::new(),
        }
    }
}

impl TrustSummary {
    /// Summarises a valid file.
    pub(super) fn new(root: &ast::Value, settings: &Settings) -> Self {
        let root = to_json(root);
        let entries = ["mcpServers", "servers"].iter().filter_map(|key| root.get(key)?.as_object()).flatten();
        // A hostile file may have very many servers.
        let enabled: HashMap<&str, &ServerSettings> =
            settings.servers.iter().map(|server| (server.name.as_str(), server)).collect();
        let server = |(name, entry): (&String, &Value)| {
            // A disabled server has no settings.
            let settings = enabled.get(name.as_str())?;
            Some((name.clone(), ServerSummary::new(entry.as_object()?, settings)))
        };
        let bridge = root.get("bascule").and_then(Value::as_object);
        Self {
            servers: entries.filter_map(server).collect(),
            bridge: BridgeSummary::new(bridge.unwrap_or(&Map::new()), &settings.bridge),
        }
    }

    /// Describes what this configuration does and `trusted` does not, the most dangerous first. Empty if it needs no
    /// further trust. The lines contain no control characters.
    pub fn describe_beyond(&self, trusted: &Self) -> Vec<String> {
        let mut groups: Vec<(bool, Vec<String>)> = Vec::new();
        groups.push((true, self.bridge.describe_beyond(&trusted.bridge)));
        for (name, server) in &self.servers {
            let lines = match trusted.servers.get(name) {
                Some(trusted) => server.describe_beyond(trusted, name),
                None => server.describe_new(name),
            };
            groups.push((server.is_unconfined(), lines));
        }
        groups.sort_by_key(|(is_dangerous, _)| !is_dangerous);
        let lines: Vec<String> = groups.into_iter().flat_map(|(_, lines)| lines).collect();
        mention_omissions(lines)
    }

    /// Returns the names of the servers.
    pub fn servers(&self) -> impl Iterator<Item = &str> {
        self.servers.keys().map(String::as_str)
    }
}

impl ServerSummary {
    fn new(entry: &Map<String, Value>, settings: &ServerSettings) -> Self {
        let is_stdio = matches!(settings.transport, TransportSettings::Stdio { .. });
        let get = |key: &str, is_used: bool| entry.get(key).filter(|_| is_used);
        let words =
            get("command", is_stdio).into_iter().chain(get("args", is_stdio).into_iter().flat_map(list));
        let limits = settings.largest_limits();
        let is_other =
            |key: &str| !HARMLESS_SERVER_KEYS.contains(&key) && !COMPARED_SERVER_KEYS.contains(&key);
        Self {
            command: words.map(spelling).collect(),
            cwd: get("cwd", is_stdio).map(spelling),
            env: hidden_values(get("env", is_stdio)),
            env_file: get("envFile", is_stdio).map(spelling),
            url: get("url", !is_stdio).map(|url| HiddenValue::url(&spelling(url))),
            headers: hidden_values(get("headers", !is_stdio)),
            sandbox: entry.get("sandbox").cloned().unwrap_or_else(|| json!("standard")),
            memory_mb: limits.max_memory_mb,
            processes: limits.max_processes,
            open_files: limits.max_open_files,
            home_mb: limits.max_home_mb,
            allowed_tools: settings.allowed_tools.clone().map(BTreeSet::from_iter),
            denied_tools: settings.denied_tools.iter().cloned().collect(),
            is_per_call: settings.isolation == Isolation::PerCall,
            is_per_client: settings.session == SessionSharing::PerClient,
            other: digests(entry, is_other),
        }
    }

    fn is_unconfined(&self) -> bool {
        self.sandbox == "off" && self.url.is_none()
    }

    /// Describes a server that was not there before.
    fn describe_new(&self, name: &str) -> Vec<String> {
        let mut lines = vec![match &self.url {
            Some(url) => format!("new server `{name}` connects to `{}`", show(&url.shown)),
            // The confinement comes first: hostile text follows.
            None => format!(
                "new server `{name}` runs {}: `{}`",
                show_sandbox(&self.sandbox),
                show_command(&self.command)
            ),
        }];
        lines.extend(self.cwd.iter().map(|cwd| format!("  in the folder `{}`", show(cwd))));
        if !self.env.is_empty() {
            lines.push(format!("  with the environment variables {}", show_values(self.env.iter())));
        }
        lines.extend(
            self.env_file.iter().map(|file| format!("  with the variables in the file `{}`", show(file))),
        );
        if !self.headers.is_empty() {
            lines.push(format!("  with the headers {}", show_values(self.headers.iter())));
        }
        lines
    }

    /// Describes what a known server does beyond what is trusted.
    fn describe_beyond(&self, trusted: &Self, name: &str) -> Vec<String> {
        let mut lines = Vec::from_iter(self.describe_new_target(trusted));
        if self.cwd != trusted.cwd {
            let folder = self
                .cwd
                .as_deref()
                .map_or("the folder of the bridge".into(), |cwd| format!("`{}`", show(cwd)));
            lines.push(format!("now runs in {folder}"));
        }
        lines.extend(describe_values("environment variables", &self.env, &trusted.env));
        if self.env_file != trusted.env_file {
            let file = self
                .env_file
                .as_deref()
                .map_or("no file".into(), |file| format!("the file `{}`", show(file)));
            lines.push(format!("now has the variables in {file} (`envFile`)"));
        }
        lines.extend(describe_values("headers", &self.headers, &trusted.headers));
        if !is_confined_as_much(&self.sandbox, &trusted.sandbox) {
            let (new, old) = (show_sandbox(&self.sandbox), show_sandbox(&trusted.sandbox));
            lines.push(format!("now runs {new}, not {old}"));
        }
        lines.extend(self.describe_limits(trusted));
        lines.extend(describe_other("", &self.other, &trusted.other));
        lines.into_iter().map(|line| format!("server `{name}` {line}")).collect()
    }

    /// Describes the URL or the command if it is another one than is trusted.
    fn describe_new_target(&self, trusted: &Self) -> Option<String> {
        match (&self.url, &trusted.url) {
            (Some(url), old) if Some(url) != old.as_ref() => {
                Some(format!("now connects to `{}`", show(&url.shown)))
            }
            (None, _) if self.command != trusted.command => Some(format!(
                "now runs {}: `{}` instead of `{}`",
                show_sandbox(&self.sandbox),
                show_command(&self.command),
                trusted.describe_target(),
            )),
            _ => None,
        }
    }

    fn describe_target(&self) -> String {
        self.url.as_ref().map_or_else(|| show_command(&self.command), |url| show(&url.shown))
    }

    fn describe_limits(&self, trusted: &Self) -> Vec<String> {
        let counts = [
            ("MB of memory", Some(self.memory_mb), Some(trusted.memory_mb)),
            ("processes", self.processes, trusted.processes),
            ("open files", self.open_files, trusted.open_files),
            ("MB in its home", self.home_mb, trusted.home_mb),
        ];
        let raised =
            counts.into_iter().filter(|(_, new, old)| new.unwrap_or(u32::MAX) > old.unwrap_or(u32::MAX));
        let show_count = |count: Option<u32>| count.map_or("any number of".into(), |count| count.to_string());
        let mut lines: Vec<String> = raised
            .map(|(unit, new, old)| {
                format!("may use {} {unit} instead of {}", show_count(new), show_count(old))
            })
            .collect();
        let allows_more = match (&self.allowed_tools, &trusted.allowed_tools) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(new), Some(old)) => !new.is_subset(old),
        };
        if allows_more {
            lines.push("allows more tools (`allowedTools`)".into());
        }
        if !self.denied_tools.is_superset(&trusted.denied_tools) {
            lines.push("denies fewer tools (`deniedTools`)".into());
        }
        if trusted.is_per_call && !self.is_per_call {
            lines.push("uses one process for all calls (`isolation`)".into());
        }
        if trusted.is_per_client && !self.is_per_client {
            lines.push("uses one session for all clients (`session`)".into());
        }
        lines
    }
}

impl BridgeSummary {
    fn new(entry: &Map<String, Value>, settings: &BridgeSettings) -> Self {
        Self {
            address: settings.listen.ip(),
            needs_token: settings.auth == Authentication::Token,
            tokens: entry
                .get("tokens")
                .into_iter()
                .flat_map(list)
                .map(|token| digest(&spelling(token)))
                .collect(),
            hosts: settings.allowed_hosts.iter().cloned().collect(),
            origins: settings.allowed_origins.iter().cloned().collect(),
            bus: entry.get("bus").and_then(Value::as_object).map(BusSummary::new),
            other: digests(entry, |key| !KNOWN_BRIDGE_KEYS.contains(&key)),
        }
    }

    fn describe_beyond(&self, trusted: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.address != trusted.address && !self.address.is_loopback() {
            lines.push(format!("the bridge listens on {}, which other machines may reach", self.address));
        }
        if trusted.needs_token && !self.needs_token {
            lines.push("the bridge asks HTTP clients for no token (`bascule.auth`)".into());
        }
        let tokens = self.tokens.difference(&trusted.tokens).count();
        if tokens > 0 {
            lines.push(format!(
                "the bridge accepts {tokens} more {}, which the file contains (`bascule.tokens`)",
                if tokens == 1 { "token" } else { "tokens" }
            ));
        }
        for (key, new, old) in [
            ("allowedHosts", &self.hosts, &trusted.hosts),
            ("allowedOrigins", &self.origins, &trusted.origins),
        ] {
            let added: Vec<String> = new.difference(old).map(|name| format!("`{}`", show(name))).collect();
            if !added.is_empty() {
                lines.push(format!("the bridge accepts {} (`bascule.{key}`)", join(&added)));
            }
        }
        if let Some(bus) = self.bus.as_ref().filter(|bus| trusted.bus.as_ref() != Some(bus)) {
            lines.push(bus.describe());
        }
        lines.extend(describe_other("the bridge ", &self.other, &trusted.other));
        lines
    }
}

impl BusSummary {
    fn new(entry: &Map<String, Value>) -> Self {
        let is_other = |key: &str| !["url", "agent"].contains(&key) && !HARMLESS_BUS_KEYS.contains(&key);
        Self {
            url: entry.get("url").map(|url| HiddenValue::bus_url(&spelling(url))),
            agent: entry.get("agent").map(spelling),
            other: digests(entry, is_other),
        }
    }

    fn describe(&self) -> String {
        let url = self.url.as_ref().map_or("no address".into(), |url| format!("`{}`", show(&url.shown)));
        match &self.agent {
            Some(agent) => format!(
                "the bridge lets agent `{}` on the bus at {url} call its tools (`bascule.bus`)",
                show(agent)
            ),
            None => format!("the bridge has the bus at {url} (`bascule.bus`)"),
        }
    }
}

/// Returns true if `new` permits nothing that `old` does not.
fn is_confined_as_much(new: &Value, old: &Value) -> bool {
    match (new, old) {
        _ if new == old || old == "off" => true,
        (Value::Object(new), Value::Object(old)) => {
            let keys: BTreeSet<&String> = new.keys().chain(old.keys()).collect();
            keys.into_iter().all(|key| is_rule_as_strict(key, new, old))
        }
        _ => new == "strict" && old == "standard",
    }
}

fn is_rule_as_strict(key: &str, new: &Map<String, Value>, old: &Map<String, Value>) -> bool {
    let (value, trusted) = (new.get(key), old.get(key));
    let is_listed = |path: &Value, key| old.get(key).into_iter().flat_map(list).any(|listed| listed == path);
    let mut paths = value.into_iter().flat_map(list);
    value == trusted
        || match key {
            "read" => paths.all(|path| is_listed(path, "read") || is_listed(path, "write")),
            "write" => paths.all(|path| is_listed(path, "write")),
            "profile" => value.is_none_or(|profile| profile == "strict"),
            "network" => value.is_some_and(|network| network == "none"),
            "unixSockets" => value.is_none_or(|sockets| sockets == false),
            "processes" | "files" => match (value.and_then(Value::as_f64), trusted.and_then(Value::as_f64)) {
                (Some(new), Some(old)) => new <= old,
                _ => false,
            },
            _ => false,
        }
}

impl HiddenValue {
    fn new(text: &str) -> Self {
        Self { shown: hide_literals(text), digest: digest(text) }
    }

    /// Hides user and password.
    fn bus_url(text: &str) -> Self {
        let shown = BusUrl::parse(text).map_or_else(|_| hide_literals(text), |url| url.to_string());
        Self { shown, digest: digest(text) }
    }

    /// Hides the query only.
    fn url(text: &str) -> Self {
        let shown = text.split_once('?').map_or_else(|| text.into(), |(before, _)| format!("{before}?***"));
        Self { shown, digest: digest(text) }
    }
}

fn hidden_values(object: Option<&Value>) -> BTreeMap<String, HiddenValue> {
    let entries = object.and_then(Value::as_object).into_iter().flatten();
    // `null` is an unset variable.
    let entries = entries.filter(|(_, value)| !value.is_null());
    entries.map(|(name, value)| (name.clone(), HiddenValue::new(&spelling(value)))).collect()
}

fn describe_values(
    what: &str,
    new: &BTreeMap<String, HiddenValue>,
    old: &BTreeMap<String, HiddenValue>,
) -> Vec<String> {
    let changed: Vec<_> = new.iter().filter(|(name, value)| old.get(*name) != Some(value)).collect();
    let removed: Vec<String> =
        old.keys().filter(|name| !new.contains_key(*name)).map(|name| format!("`{}`", show(name))).collect();
    let mut lines = Vec::new();
    if !changed.is_empty() {
        lines.push(format!("has new or changed {what} {}", show_values(changed.into_iter())));
    }
    if !removed.is_empty() {
        lines.push(format!("has lost the {what} {}", join(&removed)));
    }
    lines
}

fn describe_other(
    prefix: &str,
    new: &BTreeMap<String, String>,
    old: &BTreeMap<String, String>,
) -> Vec<String> {
    let keys: BTreeSet<&String> = new.keys().chain(old.keys()).collect();
    let changed = keys.into_iter().filter(|key| new.get(*key) != old.get(*key));
    let changed: Vec<String> = changed.map(|key| format!("`{}`", show(key))).collect();
    match changed.is_empty() {
        true => Vec::new(),
        false => vec![format!("{prefix}has new or changed settings {}", join(&changed))],
    }
}

fn show_values<'a>(values: impl Iterator<Item = (&'a String, &'a HiddenValue)>) -> String {
    let values = values.map(|(name, value)| format!("`{}={}`", show(name), show(&value.shown)));
    join(&values.collect::<Vec<_>>())
}

fn digests(entry: &Map<String, Value>, is_wanted: impl Fn(&str) -> bool) -> BTreeMap<String, String> {
    let wanted = entry.iter().filter(|(key, _)| is_wanted(key));
    wanted.map(|(key, value)| (key.clone(), digest(&value.to_string()))).collect()
}

fn digest(text: &str) -> String {
    sha256(text.as_bytes())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns a string without quotes, and other values as JSON.
fn spelling(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns `None` for an unusual spelling. It stays text, so that two spellings are never taken for one.
fn to_number(spelling: &str) -> Option<Value> {
    let number: Value = serde_json::from_str(spelling).ok()?;
    serde_json::to_string(&number).is_ok_and(|usual| usual == spelling).then_some(number)
}

/// Converts a syntax tree without duplicate keys.
fn to_json(value: &ast::Value) -> Value {
    match value {
        ast::Value::StringLit(text) => text.value.clone().into(),
        ast::Value::NumberLit(number) => to_number(number.value).unwrap_or_else(|| number.value.into()),
        ast::Value::BooleanLit(flag) => flag.value.into(),
        ast::Value::NullKeyword(_) => Value::Null,
        ast::Value::Array(array) => array.elements.iter().map(to_json).collect(),
        ast::Value::Object(object) => {
            let property = |p: &ast::ObjectProp| (p.name.as_str().to_owned(), to_json(&p.value));
            Value::Object(object.properties.iter().map(property).collect())
        }
    }
}
