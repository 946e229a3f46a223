//! Finds the programs of this crate, building them first.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of a program of this crate, built once a process into the folder the running test came from.
///
/// # Panics
/// Where it cannot be built: a test that cannot run fails.
pub fn binary(name: &str) -> PathBuf {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let folder = BUILT.get_or_init(build);
    let folder = folder.as_ref().unwrap_or_else(|error| panic!("could not build the testkit: {error}"));
    let path = folder.join(format!("{name}{}", env::consts::EXE_SUFFIX));
    assert!(path.exists(), "bascule-testkit has no program `{name}` at `{}`", path.display());
    path
}

fn build() -> Result<PathBuf, String> {
    let folder = profile_folder();
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "bascule-testkit", "--bins"])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .args(["--profile", profile(&folder)])
        .arg("--target-dir")
        .arg(folder.parent().expect("a profile's folder lies in the target folder"))
        .output()
        .expect("cargo can be started");
    match built.status.success() {
        true => Ok(folder),
        false => Err(String::from_utf8_lossy(&built.stderr).into_owned()),
    }
}

/// `target/debug` of a test at `target/debug/deps/name-hash`, or of a program at `target/debug/name`.
fn profile_folder() -> PathBuf {
    let program = env::current_exe().expect("a running program knows its path");
    let folder = program.parent().expect("a program lies in a folder");
    match folder.file_name().is_some_and(|name| name == "deps" || name == "examples") {
        true => folder.parent().expect("deps lies in the profile's folder").to_owned(),
        false => folder.to_owned(),
    }
}

fn profile(folder: &Path) -> &str {
    match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;
    use std::process::{Child, Stdio};

    use super::*;

    const CALL: &str =
        r#"{"id":1,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hi"}}}"#;

    fn start(arguments: &[&str]) -> Child {
        let mut command = Command::new(binary("echo-server"));
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn connect(server: &mut Child) -> TcpStream {
        let mut address = String::new();
        BufReader::new(server.stderr.take().unwrap()).read_line(&mut address).unwrap();
        TcpStream::connect(address.trim()).unwrap()
    }

    fn stop(mut server: Child) {
        server.kill().unwrap();
        server.wait().unwrap();
    }

    #[test]
    fn the_echo_server_speaks_mcp_over_its_pipes() {
        let mut server = start(&[]);
        writeln!(server.stdin.take().unwrap(), "{CALL}").unwrap();
        let said = String::from_utf8(server.wait_with_output().unwrap().stdout).unwrap();
        assert!(said.contains(r#""text":"hi""#), "{said}");
    }

    #[test]
    fn the_echo_server_speaks_http_and_keeps_the_connection() {
        let mut server = start(&["http", "127.0.0.1:0"]);
        let mut stream = connect(&mut server);
        for _ in 0..2 {
            let length = CALL.len();
            write!(stream, "POST /mcp HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{CALL}").unwrap();
            let mut block = [0; 4096];
            let count = stream.read(&mut block).unwrap();
            let said = String::from_utf8_lossy(&block[..count]);
            assert!(said.starts_with("HTTP/1.1 200 OK") && said.contains(r#""text":"hi""#), "{said}");
        }
        stop(server);
    }

    #[test]
    fn the_bare_echoes_return_every_byte() {
        let mut pipe = start(&["raw"]);
        writeln!(pipe.stdin.take().unwrap(), "one\ntwo").unwrap();
        assert_eq!(pipe.wait_with_output().unwrap().stdout, b"one\ntwo\n");
        let mut socket = start(&["raw-tcp", "127.0.0.1:0"]);
        let mut stream = connect(&mut socket);
        stream.write_all(b"three\n").unwrap();
        let mut said = [0; 6];
        stream.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"three\n");
        stop(socket);
    }
}
