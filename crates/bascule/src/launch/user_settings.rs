//! Passes on settings of the user that programs in a sandbox need, without credentials: the package registries of npm, pip
//! and uv, and the name that git writes into commits.
//!
//! A server does not read the user's home. Without its registries, a package manager would ask the public one for packages
//! that only a private one has.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bascule_sandbox::{Access, Grant, Secrets};

use super::server_folder::ServerFolder;
use crate::config::{Sandbox, ServerSettings};

/// Variables of the bridge that name registries, certificates and proxies.
const VARIABLES: [&str; 28] = [
    "NPM_CONFIG_REGISTRY",
    "npm_config_registry",
    "NPM_CONFIG_CAFILE",
    "npm_config_cafile",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_TRUSTED_HOST",
    "PIP_CERT",
    "PIP_FIND_LINKS",
    "PIP_NO_INDEX",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_INDEX",
    "UV_INSECURE_HOST",
    "UV_NATIVE_TLS",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
];

/// A settings file of a program.
struct SettingsFile {
    /// The variable that names the user's file, if it is set.
    variable: &'static str,
    /// The user's file, relative to the home.
    in_home: &'static [&'static str],
    /// The copy, relative to the server's settings folder.
    copy: &'static str,
    /// Keys that are passed on. All others are left out: they may hold credentials.
    keys: &'static [&'static str],
    continuation: Continuation,
}

/// The lines of a settings file that continue the value above them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Continuation {
    None,
    Indented,
    /// Lines of a TOML list.
    WithoutEqualSign,
}

const FILES: [SettingsFile; 4] = [
    SettingsFile {
        variable: "NPM_CONFIG_USERCONFIG",
        in_home: &[".npmrc"],
        copy: "npmrc",
        keys: &["registry", "cafile", "ca", "strict-ssl", "proxy", "https-proxy", "noproxy"],
        continuation: Continuation::None,
    },
    SettingsFile {
        variable: "PIP_CONFIG_FILE",
        in_home: &[".config/pip/pip.conf", ".pip/pip.conf"],
        copy: "pip.conf",
        keys: &["index-url", "extra-index-url", "trusted-host", "cert", "proxy", "find-links", "no-index"],
        continuation: Continuation::Indented,
    },
    SettingsFile {
        variable: "UV_CONFIG_FILE",
        in_home: &[".config/uv/uv.toml"],
        copy: "uv/uv.toml",
        keys: &[
            "index-url",
            "extra-index-url",
            "index",
            "name",
            "url",
            "default",
            "explicit",
            "native-tls",
            "allow-insecure-host",
            "find-links",
            "no-index",
        ],
        continuation: Continuation::WithoutEqualSign,
    },
    SettingsFile {
        variable: "GIT_CONFIG_GLOBAL",
        in_home: &[".gitconfig", ".config/git/config"],
        copy: "gitconfig",
        keys: &["name", "email", "defaultbranch", "autocrlf"],
        continuation: Continuation::None,
    },
];

/// Writes the copies of the user's files, and returns the variables that name them.
pub(super) fn variables(folder: &ServerFolder, settings: &ServerSettings) -> Vec<(&'static str, OsString)> {
    let inherited = VARIABLES.iter().filter_map(|name| {
        let value = std::env::var(name).ok()?;
        Some((*name, OsString::from(without_user(&value))))
    });
    let homes = bascule_sandbox::homes();
    let files = FILES.iter().filter_map(|file| file.pass_on(homes.first()?, &folder.settings, settings));
    inherited.chain(files).collect()
}

impl SettingsFile {
    fn pass_on(
        &self,
        home: &Path,
        folder: &Path,
        settings: &ServerSettings,
    ) -> Option<(&'static str, OsString)> {
        let named = std::env::var_os(self.variable).map(PathBuf::from);
        let in_home = self.in_home.iter().map(|path| place_of(home, path));
        let source = named.into_iter().chain(in_home).find(|path| path.is_file())?;
        // The configuration grants the file itself, with its credentials.
        if is_granted(&source, settings) {
            return Some((self.variable, source.into()));
        }
        let text = std::fs::read_to_string(&source).ok()?;
        let copy = folder.join(self.copy);
        std::fs::create_dir_all(copy.parent()?).ok()?;
        std::fs::write(&copy, self.without_credentials(&text)).ok()?;
        // With its own variable, uv would not read the settings of a project.
        match self.variable {
            "UV_CONFIG_FILE" => {
                let mut folders = OsString::from(folder);
                folders.push(":/etc/xdg");
                Some(("XDG_CONFIG_DIRS", folders))
            }
            variable => Some((variable, copy.into())),
        }
    }

    /// Keeps section headings and the lines of known keys, also those that continue a value.
    fn without_credentials(&self, text: &str) -> String {
        let (mut kept, mut is_kept) = (String::new(), false);
        for line in text.lines() {
            let is_continuation = match self.continuation {
                Continuation::None => false,
                Continuation::Indented => line.starts_with([' ', '\t']),
                Continuation::WithoutEqualSign => !line.contains('=') && !line.starts_with('['),
            };
            if line.starts_with('[') {
                is_kept = true;
            } else if !is_continuation {
                let key = line.split('=').next().unwrap_or_default().trim().to_lowercase().replace('_', "-");
                let is_scoped = key.starts_with('@') && key.ends_with(":registry");
                let key = key.strip_suffix("[]").unwrap_or(&key);
                is_kept = is_scoped || self.keys.contains(&key);
            }
            if is_kept {
                kept.push_str(&without_user(line));
                kept.push('\n');
            }
        }
        kept
    }
}

/// A file of the user's configuration may be moved by the environment.
fn place_of(home: &Path, path: &str) -> PathBuf {
    let moved = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|folder| folder.is_absolute());
    match (path.strip_prefix(".config/"), moved) {
        (Some(rest), Some(folder)) => folder.join(rest),
        _ => home.join(path),
    }
}

/// Grants the certificates that variables name, which may be in the home.
pub(super) fn certificate_grants(secrets: &Secrets) -> Vec<Grant> {
    const NAMES: [&str; 5] =
        ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "PIP_CERT"];
    let files = NAMES.iter().filter_map(std::env::var_os).map(PathBuf::from);
    let grants =
        files.filter(|file| file.is_absolute()).filter_map(|file| Grant::resolved(&file, Access::Read));
    grants.filter(|grant| !secrets.contain(&grant.path)).collect()
}

fn is_granted(file: &Path, settings: &ServerSettings) -> bool {
    let Sandbox::Custom { read, write, .. } = &settings.sandbox else { return false };
    read.iter().chain(write).any(|path| path == file)
}

/// Removes the user and the password from every URL of a text. A proxy may be named without a scheme.
fn without_user(text: &str) -> String {
    let text = match text.contains("://") || text.contains([' ', '=']) {
        true => text,
        false => text.rsplit_once('@').map_or(text, |(_, host)| host),
    };
    let (mut kept, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("://") {
        let end = after.find(['/', '?', '#', ' ', '"', '\'', ',']).unwrap_or(after.len());
        let host = after[..end].rfind('@').map_or(0, |at| at + 1);
        kept.push_str(before);
        kept.push_str("://");
        rest = &after[host..];
    }
    kept + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &SettingsFile, text: &str, expected: &str) {
        assert_eq!(file.without_credentials(text), expected);
    }

    // req: SB-07
    #[test]
    fn keeps_registries_of_npm_without_tokens() {
        check(
            &FILES[0],
            "registry=https://me:pw@npm.example/\n//npm.example/:_authToken=secret\n@corp:registry = https://corp.example/\n\
             _auth=c2VjcmV0\nemail=me@example\ncafile=/etc/ca.pem\nprefix=/x\nca[]=pem\n",
            "registry=https://npm.example/\n@corp:registry = https://corp.example/\ncafile=/etc/ca.pem\nca[]=pem\n",
        );
    }

    // req: SB-07
    #[test]
    fn keeps_indexes_of_pip_and_their_continuations() {
        check(
            &FILES[1],
            "[global]\nindex-url = https://token@pypi.example/simple\nextra-index-url =\n    https://a:b@one.example\n    https://two.example\n\
             client-cert = /secret\n    more\n[install]\ntrusted_host = one.example\n",
            "[global]\nindex-url = https://pypi.example/simple\nextra-index-url =\n    https://one.example\n    https://two.example\n\
             [install]\ntrusted_host = one.example\n",
        );
    }

    // req: SB-07
    #[test]
    fn keeps_indexes_of_uv() {
        check(
            &FILES[2],
            "native-tls = true\nextra-index-url = [\n  \"https://u:p@x.example/simple\",\n]\npublish-url = \"https://u:p@x\"\n\
             [[index]]\nname = \"corp\"\nurl = \"https://user:pw@y.example\"\n  username = \"u\"\n  password = \"p\"\n",
            "native-tls = true\nextra-index-url = [\n  \"https://x.example/simple\",\n]\n\
             [[index]]\nname = \"corp\"\nurl = \"https://y.example\"\n",
        );
    }

    // req: SB-07
    #[test]
    fn keeps_identity_of_git() {
        check(
            &FILES[3],
            "[user]\n\tname = Me\n\temail = me@example\n\tsigningKey = x\n[credential]\n\thelper = store\n\
             [http \"https://u:p@host\"]\n\textraHeader = secret\n[init]\n\tdefaultBranch = main\n",
            "[user]\n\tname = Me\n\temail = me@example\n[credential]\n[http \"https://host\"]\n[init]\n\tdefaultBranch = main\n",
        );
    }

    // req: SB-07
    #[test]
    fn removes_users_from_urls() {
        assert_eq!(without_user("http://a:b@c/d@e ftp://x@y"), "http://c/d@e ftp://y");
        assert_eq!(without_user("no url, me@host"), "no url, me@host");
        assert_eq!(without_user("me:pw@proxy:8080"), "proxy:8080");
    }
}
