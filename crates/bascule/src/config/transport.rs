//! Reads the transport of a server: `command`, `args`, `env`, `envFile` and `cwd`, or `url` and `headers`.

use std::fmt::Display;
use std::path::PathBuf;

use bascule_model::Secret;

use super::env_file::read_env_file;
use super::expand::VariableExpander;
use super::reader::{FieldReader, ObjectReader};
use super::settings::{RemoteProtocol, TransportSettings};
use super::url::ServerUrl;

#[derive(Clone, Copy, PartialEq)]
enum TransportKind {
    Stdio,
    Remote(RemoteProtocol),
}

const TRANSPORT_TYPES: [(&str, TransportKind); 5] = [
    ("stdio", TransportKind::Stdio),
    ("http", TransportKind::Remote(RemoteProtocol::Http)),
    ("sse", TransportKind::Remote(RemoteProtocol::Sse)),
    // Aliases of `http` that other programs use.
    ("streamable-http", TransportKind::Remote(RemoteProtocol::Http)),
    ("streamableHttp", TransportKind::Remote(RemoteProtocol::Http)),
];

/// Takes `type`, `command`, `args`, `env`, `envFile`, `cwd`, `url` and `headers` out of a server's entry.
pub(super) fn read_transport(
    entry: &mut ObjectReader,
    variables: &VariableExpander,
) -> Option<TransportSettings> {
    let kind = choose_kind(entry);
    match kind {
        Some(TransportKind::Stdio) => warn_unused(entry, &["headers"], "url"),
        Some(_) => warn_unused(entry, &["args", "env", "envFile", "cwd"], "command"),
        None => {}
    }
    // Reads both, so that the problems of both are reported.
    let (stdio, remote) = (read_stdio(entry, variables), read_remote(entry, variables, kind));
    if kind == Some(TransportKind::Stdio) { stdio } else { remote }
}

/// Returns the values of variables in `args` and `url`, which may be secret. Those of `env` and `headers` always are.
pub(super) fn find_expanded_secrets(
    entry: &ObjectReader,
    variables: &VariableExpander,
) -> Vec<Secret<String>> {
    let arguments = entry.peek("args").into_iter().flat_map(FieldReader::strings);
    let texts = arguments.chain(entry.peek("url").and_then(FieldReader::as_string));
    texts.flat_map(|text| variables.secrets_in(text)).map(|(_, value)| Secret::new(value)).collect()
}

fn choose_kind(entry: &mut ObjectReader) -> Option<TransportKind> {
    let kind = match entry.take("type") {
        Some(kind) => Some(kind.read_one_of(&TRANSPORT_TYPES)?),
        None => None,
    };
    match (entry.peek("command"), entry.peek("url"), kind) {
        (Some(_), Some(url), _) => {
            reject(url, "a server has either `command` or `url`, not both: remove one")
        }
        (Some(_), None, None | Some(TransportKind::Stdio)) => Some(TransportKind::Stdio),
        (None, Some(_), None) => Some(TransportKind::Remote(RemoteProtocol::HttpOrSse)),
        (None, None, None) => {
            reject(entry.field(), "missing `command` (to start a process) or `url` (to connect to a server)")
        }
        (_, _, Some(TransportKind::Stdio)) => {
            reject(entry.field(), "missing `command`, which type `stdio` needs")
        }
        (None, Some(_), kind) => kind,
        (_, None, Some(_)) => reject(entry.field(), "missing `url`, which types `http` and `sse` need"),
    }
}

fn reject<T>(field: &FieldReader, message: &str) -> Option<T> {
    field.error(message);
    None
}

fn warn_unused(entry: &ObjectReader, keys: &[&str], missing: &str) {
    for field in keys.iter().filter_map(|key| entry.peek(key)) {
        field.key_warning(format_args!("has no effect without `{missing}`"));
    }
}

fn read_stdio(entry: &mut ObjectReader, variables: &VariableExpander) -> Option<TransportSettings> {
    let command = entry.read("command", |f| read_non_empty(&f, variables));
    let args =
        entry.read("args", |f| f.read_list(|f| read_visible_argument(&f, variables))).unwrap_or_default();
    let env = entry.read("env", |f| read_env(f, variables)).unwrap_or_default();
    // The file is read only for a process: elsewhere the key has no effect.
    let file = entry.take("envFile").filter(|_| command.is_some());
    let env =
        file.and_then(|f| read_env_variables(&f, variables, &env)).into_iter().flatten().chain(env).collect();
    let cwd = entry.read("cwd", |f| read_path(&f, variables));
    Some(TransportSettings::Stdio { command: command?, args, env, cwd })
}

fn read_remote(
    entry: &mut ObjectReader,
    variables: &VariableExpander,
    kind: Option<TransportKind>,
) -> Option<TransportSettings> {
    let url = entry.read("url", |f| read_url(&f, variables));
    let headers = entry.read("headers", |f| read_headers(f, variables)).unwrap_or_default();
    let Some(TransportKind::Remote(protocol)) = kind else { return None };
    Some(TransportSettings::Remote { protocol, url: url?, headers })
}

/// Reads a path, resolved against the file's directory.
pub(super) fn read_path(field: &FieldReader, variables: &VariableExpander) -> Option<PathBuf> {
    read_non_empty(field, variables).map(|text| variables.absolute_path(&text))
}

/// Returns a path without reporting its problems.
pub(super) fn find_path(field: &FieldReader, variables: &VariableExpander) -> Option<PathBuf> {
    let text = variables.expand(field.as_string()?).ok()?;
    Some(variables.absolute_path(&text))
}

fn read_non_empty(field: &FieldReader, variables: &VariableExpander) -> Option<String> {
    match read_argument(field, variables)? {
        text if text.is_empty() => reject(field, "must not be empty"),
        text => Some(text),
    }
}

/// Reads an argument, which all users of the machine can see.
fn read_visible_argument(field: &FieldReader, variables: &VariableExpander) -> Option<String> {
    let text = field.read_string()?;
    if let Some(name) = variables.find_secret(text) {
        field.warning(format_args!(
            "the list of processes shows the value of `${{{name}}}` to all users: pass a secret in `env` instead"
        ));
    }
    without_nul(field, expand(field, text, variables)?)
}

fn read_argument(field: &FieldReader, variables: &VariableExpander) -> Option<String> {
    let text = expand(field, field.read_string()?, variables)?;
    without_nul(field, text)
}

fn read_env(field: FieldReader, variables: &VariableExpander) -> Option<Vec<(String, Secret<String>)>> {
    let variable = |(name, field): (&str, FieldReader)| {
        if name.is_empty() || name.contains(['=', '\0']) {
            field.key_error("invalid environment variable name: it must not be empty or contain `=`");
        }
        let value = expand(&field, field.read_secret_string()?, variables)?;
        Some((name.to_owned(), Secret::new(without_nul(&field, value)?)))
    };
    // VS Code unsets a variable with `null`; here only listed variables are set.
    let is_set = |(_, field): &(&str, FieldReader)| !field.is_null();
    Some(field.read_object()?.into_entries().into_iter().filter(is_set).filter_map(variable).collect())
}

/// Reads the variables of an `envFile`. Those in `env` win.
fn read_env_variables(
    field: &FieldReader,
    variables: &VariableExpander,
    env: &[(String, Secret<String>)],
) -> Option<Vec<(String, Secret<String>)>> {
    let path = read_path(field, variables)?;
    let read = read_env_file(&path).map_err(|reason| {
        field.error(format_args!("could not use `{}`: {reason}", path.display()));
    });
    let is_new = |(name, _): &(String, String)| !env.iter().any(|(set, _)| set == name);
    Some(read.ok()?.into_iter().filter(is_new).map(|(name, value)| (name, Secret::new(value))).collect())
}

fn without_nul(field: &FieldReader, text: String) -> Option<String> {
    match text.contains('\0') {
        true => reject(field, "must not contain a NUL character"),
        false => Some(text),
    }
}

fn read_url(field: &FieldReader, variables: &VariableExpander) -> Option<ServerUrl> {
    read_parsed(field, field.read_string()?, variables, ServerUrl::parse)
}

fn read_headers(field: FieldReader, variables: &VariableExpander) -> Option<Vec<(String, Secret<String>)>> {
    let header = |(name, field): (&str, FieldReader)| {
        if !is_header_name(name) {
            field.key_error("invalid header name: use letters, digits and !#$%&'*+-.^_`|~");
        }
        let value = expand(&field, field.read_secret_string()?, variables)?;
        if !value.bytes().all(|c| c == b'\t' || c == b' ' || c.is_ascii_graphic()) {
            return reject(&field, "invalid header value: use printable ASCII characters on one line");
        }
        Some((name.to_owned(), Secret::new(value)))
    };
    Some(field.read_object()?.into_entries().into_iter().filter_map(header).collect())
}

fn is_header_name(name: &str) -> bool {
    let legal = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    !name.is_empty() && name.bytes().all(legal)
}

/// Expands the variables of a text, parses it, and reports errors at its field.
pub(super) fn read_parsed<T, E: Display>(
    field: &FieldReader,
    text: &str,
    variables: &VariableExpander,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Option<T> {
    let text = expand(field, text, variables)?;
    parse(&text).map_err(|error| field.error(error)).ok()
}

/// Expands the variables of a text and reports errors at its field.
pub(super) fn expand(field: &FieldReader, text: &str, variables: &VariableExpander) -> Option<String> {
    let report = |errors: Vec<_>| errors.iter().for_each(|error| field.error(error));
    variables.expand(text).map_err(report).ok()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_server, server, server_from};
    use super::*;

    const SECRET: &str = "hunter2";

    fn transport(entry: &str) -> TransportSettings {
        server_from(entry, &|name| (name == "TOKEN").then(|| SECRET.into())).transport
    }

    fn url(text: &str) -> ServerUrl {
        ServerUrl::parse(text).unwrap()
    }

    // req: BR-01
    // req: SB-04
    #[test]
    fn reads_arguments_environment_and_directory_of_a_command() {
        let entry = r#"{"command": "${workspaceFolder}/run", "args": ["-y", "${A:-b}"], "cwd": "data/./x",
                        "env": {"Z": "${TOKEN}", "A": 1.50, "UNSET": null}}"#;
        let expected = TransportSettings::Stdio {
            command: "/config/run".into(),
            args: vec!["-y".into(), "b".into()],
            env: vec![("Z".into(), Secret::new(SECRET.into())), ("A".into(), Secret::new("1.50".into()))],
            cwd: Some("/config/data/x".into()),
        };
        assert_eq!(transport(entry), expected);
        assert_eq!(transport(r#"{"type": "stdio", "command": "x"}"#), transport(r#"{"command": "x"}"#));
    }

    #[test]
    fn absolute_directory_is_unchanged() {
        let TransportSettings::Stdio { cwd, .. } = transport(r#"{"command": "x", "cwd": "/data"}"#) else {
            panic!("a command is stdio");
        };
        assert_eq!(cwd, Some("/data".into()));
    }

    // req: BR-01
    #[test]
    fn type_selects_the_http_transport() {
        let remote =
            |protocol| TransportSettings::Remote { protocol, url: url("http://a"), headers: Vec::new() };
        let at = |kind: &str| server(&format!(r#"{{"type": "{kind}", "url": "http://a"}}"#)).transport;
        for kind in ["http", "streamable-http", "streamableHttp"] {
            assert_eq!(at(kind), remote(RemoteProtocol::Http));
        }
        assert_eq!(at("sse"), remote(RemoteProtocol::Sse));
        assert_eq!(server(r#"{"url": "http://a"}"#).transport, remote(RemoteProtocol::HttpOrSse));
    }

    // req: BR-01
    #[test]
    fn reads_headers_of_a_url() {
        let entry = r#"{"url": "http://${H:-a}/?${TOKEN}", "headers": {"Authorization": "Bearer ${TOKEN}"}}"#;
        let expected = TransportSettings::Remote {
            protocol: RemoteProtocol::HttpOrSse,
            url: url("http://a/?hunter2"),
            headers: vec![("Authorization".into(), Secret::new("Bearer hunter2".into()))],
        };
        assert_eq!(transport(entry), expected);
        assert!(!format!("{:?}", transport(entry)).contains(SECRET));
    }

    // req: TR-01
    #[test]
    fn values_of_variables_in_arguments_and_urls_are_secrets() {
        let environment = |name: &str| (name == "API_KEY").then(|| "correct-horse".to_owned());
        for entry in [
            r#"{"command": "x", "args": ["--key=${API_KEY}"]}"#,
            r#"{"url": "https://host/mcp?key=${env:API_KEY}"}"#,
        ] {
            let text = format!(r#"{{"mcpServers": {{"it": {entry}}}}}"#);
            let loaded =
                crate::config::parse(&text, &crate::config::testing::source(), &environment).unwrap();
            let secrets = crate::post_mortem::secrets_of(&loaded.settings.servers[0]);
            assert!(secrets.occur_in("bad key correct-horse"), "{entry}");
        }
    }

    #[test]
    fn requires_either_command_or_url() {
        check_server(
            "{}",
            "1:22: mcpServers.it: missing `command` (to start a process) or `url` (to connect to a server)",
        );
        check_server(
            r#"{"command": "x", "url": "http://a"}"#,
            "1:46: mcpServers.it.url: a server has either `command` or `url`, not both: remove one",
        );
        let stdio = "1:22: mcpServers.it: missing `command`, which type `stdio` needs";
        check_server(r#"{"type": "stdio"}"#, stdio);
        check_server(r#"{"type": "stdio", "url": "http://a"}"#, stdio);
        let http = "1:22: mcpServers.it: missing `url`, which types `http` and `sse` need";
        check_server(r#"{"type": "http", "command": "x"}"#, http);
    }

    #[test]
    fn warns_of_keys_without_effect_on_the_transport() {
        check_server(
            r#"{"url": "http://a", "args": [], "cwd": "."}"#,
            "1:42: warning: mcpServers.it.args: has no effect without `command`\n\
             1:54: warning: mcpServers.it.cwd: has no effect without `command`",
        );
        check_server(
            r#"{"command": "x", "headers": {}}"#,
            "1:39: warning: mcpServers.it.headers: has no effect without `url`",
        );
    }

    #[test]
    fn wrong_type_does_not_hide_other_problems() {
        check_server(
            r#"{"type": "ws", "url": "ws://a", "headers": {"A": 1, "B": true}}"#,
            "1:31: mcpServers.it.type: must be \"stdio\", \"http\", \"sse\", \"streamable-http\" or \
             \"streamableHttp\", is \"ws\"\n\
             1:44: mcpServers.it.url: must start with `http://` or `https://`\n\
             1:79: mcpServers.it.headers.B: must be a string, is a boolean",
        );
    }

    #[test]
    fn reports_values_of_the_wrong_type() {
        check_server(
            r#"{"command": ["npx", "x"], "args": "y", "env": []}"#,
            "1:34: mcpServers.it.command: must be a string, is a list\n\
             1:56: mcpServers.it.args: must be a list, is a string\n\
             1:68: mcpServers.it.env: must be an object, is a list",
        );
        check_server(r#"{"command": ""}"#, "1:34: mcpServers.it.command: must not be empty");
        check_server(
            r#"{"command": "a\u0000"}"#,
            "1:34: mcpServers.it.command: must not contain a NUL character",
        );
        check_server(
            r#"{"url": "ftp://a"}"#,
            "1:30: mcpServers.it.url: must start with `http://` or `https://`",
        );
    }

    #[test]
    fn warns_of_secrets_in_arguments() {
        let environment = |name: &str| (name != "UNSET").then(|| "value".to_owned());
        let text = r#"{"mcpServers": {"it": {"command": "x", "args": ["--key=${API_KEY}", "${HOME}/a", "${UNSET:-b}"]}}}"#;
        let loaded = super::super::parse(text, &super::super::testing::source(), &environment).unwrap();
        let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "mcp.json:1:49: warning: mcpServers.it.args[0]: the list of processes shows the value of `${API_KEY}` to all users: pass a secret in `env` instead"
            ]
        );
    }

    #[test]
    fn reports_undefined_variables_with_their_position() {
        check_server(
            r#"{"command": "x", "args": ["${A} ${env:B}"], "env": {"T": "${"}}"#,
            "1:48: mcpServers.it.args[0]: environment variable `A` is not set: set it, or write a default as `${A:-default}`\n\
             1:48: mcpServers.it.args[0]: environment variable `B` is not set: set it, or write a default as `${B:-default}`\n\
             1:79: mcpServers.it.env.T: `${` has no closing `}`",
        );
        check_server(
            r#"{"url": "http://a", "headers": {"Authorization": "Bearer ${input:token}"}}"#,
            "1:71: mcpServers.it.headers.Authorization: `${input:token}` is not supported, because Bascule \
             does not prompt: write `${TOKEN}` and set that environment variable",
        );
    }

    #[test]
    fn checks_names_of_variables_and_headers() {
        let variable = "invalid environment variable name: it must not be empty or contain `=`";
        check_server(
            r#"{"command": "x", "env": {"A=B": "1"}}"#,
            &format!("1:47: mcpServers.it.env[\"A=B\"]: {variable}"),
        );
        check_server(
            r#"{"url": "http://a", "headers": {"X Y": "1"}}"#,
            "1:54: mcpServers.it.headers[\"X Y\"]: invalid header name: use letters, digits and !#$%&'*+-.^_`|~",
        );
    }

    #[test]
    fn no_message_quotes_a_secret() {
        check_server(
            r#"{"command": "x", "args": "hunter2", "env": "T=hunter2"}"#,
            "1:47: mcpServers.it.args: must be a list, is a string\n\
             1:65: mcpServers.it.env: must be an object, is a string",
        );
        check_server(
            r#"{"command": "x", "env": {"T": ["hunter2"], "U": "hunter2\u0000"}}"#,
            "1:52: mcpServers.it.env.T: must be a string, is a list\n\
             1:70: mcpServers.it.env.U: must not contain a NUL character",
        );
        check_server(
            r#"{"url": "http://me:hunter2@a", "headers": {"T": "hunter2\n", "U": true}}"#,
            "1:30: mcpServers.it.url: must not contain a user or a password: use an `Authorization` header\n\
             1:70: mcpServers.it.headers.T: invalid header value: use printable ASCII characters on one line\n\
             1:88: mcpServers.it.headers.U: must be a string, is a boolean",
        );
    }
}
