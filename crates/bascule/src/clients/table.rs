//! The table of the clients: one row each.
//!
//! Where sources disagree on the place of a file, all places are listed, and the file that exists is used.

use Base::{Config, Home, Roaming, Variable};
use Slot::{
    Arguments, Command, CommandLine, EmptyMap, Flag, Headers, Name, NestedHeaders, Number, Text, Texts, Url,
};

use crate::document::{Format, ServerPlace};

/// An MCP client.
#[derive(Debug)]
pub(crate) struct ClientProgram {
    /// Its name on the command line.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) format: Format,
    pub(crate) place: ServerPlace,
    /// The file of the user; the first that exists.
    pub(crate) user_files: &'static [FilePlace],
    /// Folders that exist where the client is installed, besides those of its files.
    pub(crate) folders: &'static [FilePlace],
    pub(crate) project: ProjectFile,
    pub(crate) local: Template,
    /// `None` if the client starts processes only.
    pub(crate) remote: Option<Template>,
    pub(crate) variables: VariableSyntax,
    /// The step after a change.
    pub(crate) next_step: &'static str,
}

/// The fields of an entry, in their order.
pub(crate) type Template = &'static [(&'static str, Slot)];

/// The value of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Slot {
    Name,
    Command,
    Arguments,
    /// The command and its arguments as one list.
    CommandLine,
    Url,
    Headers,
    /// A map with the key `headers`.
    NestedHeaders,
    Text(&'static str),
    Texts(&'static [&'static str]),
    Flag(bool),
    Number(u64),
    EmptyMap,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct FilePlace {
    pub(crate) os: Os,
    pub(crate) base: Base,
    pub(crate) path: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Os {
    Any,
    Linux,
    Mac,
    Windows,
}

/// The folder that a path starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Base {
    Home,
    /// `$XDG_CONFIG_HOME`, else `~/.config`.
    Config,
    /// `%APPDATA%`.
    Roaming,
    /// The folder that an environment variable names. If it is set, no other place counts.
    Variable(&'static str),
}

/// The file of a project, relative to its folder.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ProjectFile {
    None,
    /// The first that exists.
    Own(&'static [&'static str]),
    /// The file of another client, in that client's form.
    Of(&'static str),
}

/// The way in which a client's file names environment variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VariableSyntax {
    /// `${VAR}`, or none at all.
    Ours,
    /// Also `$VAR`.
    Shell,
    /// `{env:VAR}`.
    Braces,
}

impl ClientProgram {
    pub(crate) fn by_id(id: &str) -> Option<&'static ClientProgram> {
        CLIENTS.iter().find(|client| client.id == id)
    }
}

const fn any(base: Base, path: &'static str) -> FilePlace {
    FilePlace { os: Os::Any, base, path }
}

const fn linux(base: Base, path: &'static str) -> FilePlace {
    FilePlace { os: Os::Linux, base, path }
}

const fn mac(path: &'static str) -> FilePlace {
    FilePlace { os: Os::Mac, base: Home, path }
}

const fn windows(path: &'static str) -> FilePlace {
    FilePlace { os: Os::Windows, base: Roaming, path }
}

const fn map(key: &'static str) -> ServerPlace {
    ServerPlace { key, is_list: false }
}

const COMMAND: (&str, Slot) = ("command", Command);
const ARGS: (&str, Slot) = ("args", Arguments);
const STDIO: (&str, Slot) = ("type", Text("stdio"));
const HTTP: (&str, Slot) = ("type", Text("http"));
const URL: (&str, Slot) = ("url", Url);
const HEADERS: (&str, Slot) = ("headers", Headers);

pub(crate) const CLIENTS: [ClientProgram; 13] = [
    ClientProgram {
        id: "claude-desktop",
        title: "Claude Desktop",
        format: Format::Json,
        place: map("mcpServers"),
        user_files: &[
            mac("Library/Application Support/Claude/claude_desktop_config.json"),
            linux(Config, "Claude/claude_desktop_config.json"),
            linux(Config, "claude/claude_desktop_config.json"),
            windows("Claude/claude_desktop_config.json"),
        ],
        folders: &[],
        project: ProjectFile::None,
        local: &[COMMAND, ARGS],
        remote: None,
        variables: VariableSyntax::Ours,
        next_step: "quit Claude Desktop completely and start it again",
    },
    ClientProgram {
        id: "claude-code",
        title: "Claude Code",
        format: Format::Json,
        place: map("mcpServers"),
        user_files: &[any(Variable("CLAUDE_CONFIG_DIR"), ".claude.json"), any(Home, ".claude.json")],
        folders: &[any(Home, ".claude")],
        project: ProjectFile::Own(&[".mcp.json"]),
        // Its tool search would hide our tools.
        local: &[STDIO, COMMAND, ARGS, ("alwaysLoad", Flag(true))],
        remote: Some(&[HTTP, URL, HEADERS, ("alwaysLoad", Flag(true))]),
        variables: VariableSyntax::Ours,
        next_step: "start a new session, or reconnect with `/mcp`",
    },
    ClientProgram {
        id: "cursor",
        title: "Cursor",
        format: Format::Json,
        place: map("mcpServers"),
        user_files: &[any(Home, ".cursor/mcp.json")],
        folders: &[],
        project: ProjectFile::Own(&[".cursor/mcp.json"]),
        local: &[COMMAND, ARGS],
        remote: Some(&[URL, HEADERS]),
        variables: VariableSyntax::Ours,
        next_step: "switch the server on in Settings → MCP",
    },
    ClientProgram {
        id: "vscode",
        title: "VS Code",
        format: Format::Json,
        place: map("servers"),
        user_files: &[
            mac("Library/Application Support/Code/User/mcp.json"),
            linux(Config, "Code/User/mcp.json"),
            linux(Home, ".vscode-server/data/User/mcp.json"),
            windows("Code/User/mcp.json"),
        ],
        folders: &[],
        project: ProjectFile::Own(&[".vscode/mcp.json"]),
        local: &[STDIO, COMMAND, ARGS],
        remote: Some(&[HTTP, URL, HEADERS]),
        variables: VariableSyntax::Ours,
        next_step: "run `MCP: List Servers` and start it",
    },
    ClientProgram {
        id: "windsurf",
        title: "Windsurf",
        format: Format::Json,
        place: map("mcpServers"),
        user_files: &[any(Home, ".codeium/windsurf/mcp_config.json"), any(Home, ".codeium/mcp_config.json")],
        folders: &[],
        project: ProjectFile::None,
        local: &[COMMAND, ARGS],
        remote: Some(&[("serverUrl", Url), HEADERS]),
        variables: VariableSyntax::Ours,
        next_step: "press Refresh in the MCP panel",
    },
    ClientProgram {
        id: "zed",
        title: "Zed",
        format: Format::Json,
        place: map("context_servers"),
        user_files: &[
            linux(Config, "zed/settings.json"),
            mac(".config/zed/settings.json"),
            mac("Library/Application Support/Zed/settings.json"),
            windows("Zed/settings.json"),
        ],
        folders: &[],
        project: ProjectFile::Own(&[".zed/settings.json"]),
        local: &[("source", Text("custom")), COMMAND, ARGS],
        remote: Some(&[URL, HEADERS]),
        variables: VariableSyntax::Ours,
        next_step: "Zed starts the server at once",
    },
    ClientProgram {
        id: "codex",
        title: "Codex",
        format: Format::Toml,
        place: map("mcp_servers"),
        user_files: &[any(Variable("CODEX_HOME"), "config.toml"), any(Home, ".codex/config.toml")],
        folders: &[],
        project: ProjectFile::Own(&[".codex/config.toml"]),
        local: &[COMMAND, ARGS],
        remote: Some(&[URL, ("http_headers", Headers)]),
        variables: VariableSyntax::Ours,
        next_step: "start a new session",
    },
    ClientProgram {
        id: "gemini",
        title: "Gemini CLI",
        format: Format::Json,
        place: map("mcpServers"),
        user_files: &[any(Home, ".gemini/settings.json")],
        folders: &[],
        project: ProjectFile::Own(&[".gemini/settings.json"]),
        local: &[COMMAND, ARGS],
        remote: Some(&[("httpUrl", Url), HEADERS]),
        variables: VariableSyntax::Shell,
        next_step: "start a new session",
    },
    ClientProgram {
        id: "goose",
        title: "Goose",
        format: Format::Yaml,
        place: map("extensions"),
        user_files: &[
            linux(Config, "goose/config.yaml"),
            mac(".config/goose/config.yaml"),
            windows("Block/goose/config/config.yaml"),
        ],
        folders: &[],
        project: ProjectFile::None,
        local: &[
            ("name", Name),
            STDIO,
            ("cmd", Command),
            ARGS,
            ("envs", EmptyMap),
            ("enabled", Flag(true)),
            ("timeout", Number(300)),
        ],
        remote: Some(&[
            ("name", Name),
            ("type", Text("streamable_http")),
            ("uri", Url),
            HEADERS,
            ("enabled", Flag(true)),
            ("timeout", Number(300)),
        ]),
        variables: VariableSyntax::Ours,
        next_step: "start a new session",
    },
    ClientProgram {
        id: "continue",
        title: "Continue",
        format: Format::Yaml,
        place: ServerPlace { key: "mcpServers", is_list: true },
        user_files: &[any(Home, ".continue/config.yaml")],
        folders: &[],
        project: ProjectFile::None,
        local: &[("name", Name), COMMAND, ARGS],
        remote: Some(&[
            ("name", Name),
            ("type", Text("streamable-http")),
            URL,
            ("requestOptions", NestedHeaders),
        ]),
        variables: VariableSyntax::Ours,
        next_step: "reload the window",
    },
    ClientProgram {
        id: "opencode",
        title: "opencode",
        format: Format::Json,
        place: map("mcp"),
        user_files: &[
            linux(Config, "opencode/opencode.json"),
            linux(Config, "opencode/opencode.jsonc"),
            any(Home, ".config/opencode/opencode.json"),
            any(Home, ".config/opencode/opencode.jsonc"),
        ],
        folders: &[],
        project: ProjectFile::Own(&["opencode.json", "opencode.jsonc"]),
        local: &[("type", Text("local")), ("command", CommandLine), ("enabled", Flag(true))],
        // Without `oauth` it would try to log in first.
        remote: Some(&[
            ("type", Text("remote")),
            URL,
            HEADERS,
            ("oauth", Flag(false)),
            ("enabled", Flag(true)),
        ]),
        variables: VariableSyntax::Braces,
        next_step: "start a new session",
    },
    ClientProgram {
        id: "cline",
        title: "Cline",
        format: Format::Json,
        place: map("mcpServers"),
        user_files: &[
            mac(
                "Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            ),
            linux(Config, "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
            linux(
                Home,
                ".vscode-server/data/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
            ),
            windows("Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
            any(Home, ".cline/data/settings/cline_mcp_settings.json"),
        ],
        folders: &[],
        project: ProjectFile::None,
        local: &[COMMAND, ARGS, ("disabled", Flag(false)), ("autoApprove", Texts(&[]))],
        // Another spelling of the type falls back to HTTP+SSE.
        remote: Some(&[("type", Text("streamableHttp")), URL, HEADERS, ("disabled", Flag(false))]),
        variables: VariableSyntax::Ours,
        next_step: "Cline starts the server at once",
    },
    ClientProgram {
        id: "copilot",
        title: "Copilot CLI",
        format: Format::Json,
        place: map("mcpServers"),
        user_files: &[
            any(Home, ".copilot/mcp-config.json"),
            linux(Config, ".copilot/mcp-config.json"),
            linux(Config, "copilot/mcp-config.json"),
        ],
        folders: &[],
        project: ProjectFile::Of("vscode"),
        // Its tool search would hide our tools.
        local: &[STDIO, COMMAND, ARGS, ("tools", Texts(&["*"])), ("deferTools", Text("never"))],
        remote: Some(&[HTTP, URL, HEADERS, ("tools", Texts(&["*"])), ("deferTools", Text("never"))]),
        variables: VariableSyntax::Ours,
        next_step: "start a new session",
    },
];
