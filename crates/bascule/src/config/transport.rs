//! Reads how a server is reached: `command` and what belongs to it, or `url` and what belongs to that.

use std::path::PathBuf;

use bascule_model::Secret;

use super::expand::Variables;
use super::reader::{Field, Object};
use super::settings::TransportSettings;
use super::url::ServerUrl;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Stdio,
    Http,
    Sse,
    HttpOrSse,
}

const KINDS: [(&str, Kind); 5] = [
    ("stdio", Kind::Stdio),
    ("http", Kind::Http),
    ("sse", Kind::Sse),
    // Other programs' names for the second.
    ("streamable-http", Kind::Http),
    ("streamableHttp", Kind::Http),
];

/// Takes `type`, `command`, `args`, `env`, `cwd`, `url` and `headers` out of a server's entry.
pub(super) fn read(entry: &mut Object, variables: &Variables) -> Option<TransportSettings> {
    let kind = decide(entry);
    match kind {
        Some(Kind::Stdio) => warn_unused(entry, &["headers"], "url"),
        Some(_) => warn_unused(entry, &["args", "env", "cwd"], "command"),
        None => {}
    }
    // Both are read whatever the kind, so that all their problems come out.
    let (local, remote) = (local(entry, variables), remote(entry, variables, kind));
    if kind == Some(Kind::Stdio) { local } else { remote }
}

fn decide(entry: &mut Object) -> Option<Kind> {
    let kind = match entry.take("type") {
        Some(kind) => Some(kind.one_of(&KINDS)?),
        None => None,
    };
    match (entry.peek("command"), entry.peek("url"), kind) {
        (Some(_), Some(url), _) => complain(url, "stands beside `command`: a server has one or the other"),
        (Some(_), None, None | Some(Kind::Stdio)) => Some(Kind::Stdio),
        (None, Some(_), None) => Some(Kind::HttpOrSse),
        (None, None, None) => complain(entry.this(), "needs `command` or `url`"),
        (_, _, Some(Kind::Stdio)) => complain(entry.this(), "needs `command`, being of type `stdio`"),
        (None, Some(_), kind) => kind,
        (_, None, Some(_)) => complain(entry.this(), "needs `url`, being of a type reached over HTTP"),
    }
}

fn complain<T>(field: &Field, message: &str) -> Option<T> {
    field.error(message);
    None
}

fn warn_unused(entry: &Object, keys: &[&str], missing: &str) {
    for field in keys.iter().filter_map(|key| entry.peek(key)) {
        field.key_warning(format_args!("has no effect without `{missing}`"));
    }
}

fn local(entry: &mut Object, variables: &Variables) -> Option<TransportSettings> {
    let command = entry.read("command", |f| program(&f, variables));
    let args = entry.read("args", |f| f.list(|f| argument(&f, variables))).unwrap_or_default();
    let env = entry.read("env", |f| environment(f, variables)).unwrap_or_default();
    let cwd = entry.read("cwd", |f| path(&f, variables));
    Some(TransportSettings::Stdio { command: command?, args, env, cwd })
}

fn remote(entry: &mut Object, variables: &Variables, kind: Option<Kind>) -> Option<TransportSettings> {
    let url = entry.read("url", |f| address(&f, variables));
    let headers = entry.read("headers", |f| header_list(f, variables)).unwrap_or_default();
    let url = url?;
    match kind? {
        Kind::Stdio => None,
        Kind::Http => Some(TransportSettings::Http { url, headers }),
        Kind::Sse => Some(TransportSettings::Sse { url, headers }),
        Kind::HttpOrSse => Some(TransportSettings::HttpOrSse { url, headers }),
    }
}

/// A path, made absolute by the folder the file lies in.
pub(super) fn path(field: &Field, variables: &Variables) -> Option<PathBuf> {
    program(field, variables).map(|text| variables.absolute(&text))
}

fn program(field: &Field, variables: &Variables) -> Option<String> {
    match argument(field, variables)? {
        text if text.is_empty() => complain(field, "must not be empty"),
        text => Some(text),
    }
}

fn argument(field: &Field, variables: &Variables) -> Option<String> {
    let text = expanded(field, field.text()?, variables)?;
    without_nul(field, text)
}

fn environment(field: Field, variables: &Variables) -> Option<Vec<(String, Secret<String>)>> {
    let variable = |(name, field): (&str, Field)| {
        if name.is_empty() || name.contains(['=', '\0']) {
            field.key_error(
                "an environment variable's name has at least one character, and no `=` among them",
            );
        }
        let value = expanded(&field, field.secret_text()?, variables)?;
        Some((name.to_owned(), Secret::new(without_nul(&field, value)?)))
    };
    // VS Code's way to say that a variable is not set; here none is that is not named.
    let is_set = |(_, field): &(&str, Field)| !field.is_null();
    Some(field.object()?.into_entries().into_iter().filter(is_set).filter_map(variable).collect())
}

fn without_nul(field: &Field, text: String) -> Option<String> {
    match text.contains('\0') {
        true => complain(field, "must not hold the character NUL"),
        false => Some(text),
    }
}

fn address(field: &Field, variables: &Variables) -> Option<ServerUrl> {
    let text = expanded(field, field.text()?, variables)?;
    ServerUrl::parse(&text).map_err(|error| field.error(error)).ok()
}

fn header_list(field: Field, variables: &Variables) -> Option<Vec<(String, Secret<String>)>> {
    let header = |(name, field): (&str, Field)| {
        if !is_header_name(name) {
            field.key_error("a header's name consists of letters, digits and !#$%&'*+-.^_`|~");
        }
        let value = expanded(&field, field.secret_text()?, variables)?;
        if !value.bytes().all(|c| c == b'\t' || c == b' ' || c.is_ascii_graphic()) {
            return complain(&field, "a header's value consists of printable ASCII characters, on one line");
        }
        Some((name.to_owned(), Secret::new(value)))
    };
    Some(field.object()?.into_entries().into_iter().filter_map(header).collect())
}

fn is_header_name(name: &str) -> bool {
    let legal = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
    !name.is_empty() && name.bytes().all(legal)
}

pub(super) fn expanded(field: &Field, text: &str, variables: &Variables) -> Option<String> {
    let complain = |errors: Vec<_>| errors.iter().for_each(|error| field.error(error));
    variables.expand(text).map_err(complain).ok()
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
    fn a_command_has_arguments_an_environment_and_a_folder() {
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
    fn an_absolute_folder_stays_as_it_is() {
        let TransportSettings::Stdio { cwd, .. } = transport(r#"{"command": "x", "cwd": "/data"}"#) else {
            panic!("a command is stdio");
        };
        assert_eq!(cwd, Some("/data".into()));
    }

    // req: BR-01
    #[test]
    fn a_type_says_how_an_address_is_spoken_to() {
        let headers = Vec::new;
        let at = |kind: &str| server(&format!(r#"{{"type": "{kind}", "url": "http://a"}}"#)).transport;
        let http = TransportSettings::Http { url: url("http://a"), headers: headers() };
        for kind in ["http", "streamable-http", "streamableHttp"] {
            assert_eq!(at(kind), http);
        }
        assert_eq!(at("sse"), TransportSettings::Sse { url: url("http://a"), headers: headers() });
        let either = TransportSettings::HttpOrSse { url: url("http://a"), headers: headers() };
        assert_eq!(server(r#"{"url": "http://a"}"#).transport, either);
    }

    // req: BR-01
    #[test]
    fn an_address_has_headers() {
        let entry = r#"{"url": "http://${H:-a}/?${TOKEN}", "headers": {"Authorization": "Bearer ${TOKEN}"}}"#;
        let expected = TransportSettings::HttpOrSse {
            url: url("http://a/?hunter2"),
            headers: vec![("Authorization".into(), Secret::new("Bearer hunter2".into()))],
        };
        assert_eq!(transport(entry), expected);
        assert!(!format!("{:?}", transport(entry)).contains(SECRET));
    }

    #[test]
    fn a_server_has_a_command_or_a_url_and_not_both() {
        check_server("{}", "1:22: mcpServers.it: needs `command` or `url`");
        check_server(
            r#"{"command": "x", "url": "http://a"}"#,
            "1:46: mcpServers.it.url: stands beside `command`: a server has one or the other",
        );
        let stdio = "1:22: mcpServers.it: needs `command`, being of type `stdio`";
        check_server(r#"{"type": "stdio"}"#, stdio);
        check_server(r#"{"type": "stdio", "url": "http://a"}"#, stdio);
        let http = "1:22: mcpServers.it: needs `url`, being of a type reached over HTTP";
        check_server(r#"{"type": "http", "command": "x"}"#, http);
    }

    #[test]
    fn what_does_not_belong_to_the_transport_is_warned_about() {
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
    fn a_wrong_transport_does_not_hide_what_else_is_wrong() {
        check_server(
            r#"{"type": "ws", "url": "ws://a", "headers": {"A": 1, "B": true}}"#,
            "1:31: mcpServers.it.type: must be \"stdio\", \"http\", \"sse\", \"streamable-http\" or \
             \"streamableHttp\", is \"ws\"\n\
             1:44: mcpServers.it.url: must start with `http://` or `https://`\n\
             1:79: mcpServers.it.headers.B: must be a string, is a boolean",
        );
    }

    #[test]
    fn values_of_the_wrong_kind_are_pointed_at() {
        check_server(
            r#"{"command": ["npx", "x"], "args": "y", "env": []}"#,
            "1:34: mcpServers.it.command: must be a string, is a list\n\
             1:56: mcpServers.it.args: must be a list, is a string\n\
             1:68: mcpServers.it.env: must be an object, is a list",
        );
        check_server(r#"{"command": ""}"#, "1:34: mcpServers.it.command: must not be empty");
        check_server(
            r#"{"command": "a\u0000"}"#,
            "1:34: mcpServers.it.command: must not hold the character NUL",
        );
        check_server(
            r#"{"url": "ftp://a"}"#,
            "1:30: mcpServers.it.url: must start with `http://` or `https://`",
        );
    }

    #[test]
    fn undefined_variables_are_named_with_their_place() {
        check_server(
            r#"{"command": "x", "args": ["${A} ${env:B}"], "env": {"T": "${"}}"#,
            "1:48: mcpServers.it.args[0]: the environment variable `A` is not set (a default is given with `${A:-…}`)\n\
             1:48: mcpServers.it.args[0]: the environment variable `B` is not set (a default is given with `${B:-…}`)\n\
             1:79: mcpServers.it.env.T: holds a `${` without its `}`",
        );
        check_server(
            r#"{"url": "http://a", "headers": {"Authorization": "Bearer ${input:token}"}}"#,
            "1:71: mcpServers.it.headers.Authorization: asks for an input (`${input:…}`), and Bascule cannot ask: \
             use an environment variable",
        );
    }

    #[test]
    fn names_of_variables_and_headers_are_checked() {
        let variable = "an environment variable's name has at least one character, and no `=` among them";
        check_server(
            r#"{"command": "x", "env": {"A=B": "1"}}"#,
            &format!("1:47: mcpServers.it.env[\"A=B\"]: {variable}"),
        );
        check_server(
            r#"{"url": "http://a", "headers": {"X Y": "1"}}"#,
            "1:54: mcpServers.it.headers[\"X Y\"]: a header's name consists of letters, digits and !#$%&'*+-.^_`|~",
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
             1:70: mcpServers.it.env.U: must not hold the character NUL",
        );
        check_server(
            r#"{"url": "http://me:hunter2@a", "headers": {"T": "hunter2\n", "U": true}}"#,
            "1:30: mcpServers.it.url: must not hold a user or a password: use an `Authorization` header\n\
             1:70: mcpServers.it.headers.T: a header's value consists of printable ASCII characters, on one line\n\
             1:88: mcpServers.it.headers.U: must be a string, is a boolean",
        );
    }
}
