//! Builds and locates the programs that tests start: those of this crate and `bascule-demo`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the path of a program of this crate, or of `bascule-demo`.
///
/// The first call in a process builds them into the target folder of the running test.
///
/// # Panics
/// If the build fails.
pub fn binary(name: &str) -> PathBuf {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let folder = BUILT.get_or_init(build);
    let folder = folder.as_ref().unwrap_or_else(|error| panic!("could not build the test servers: {error}"));
    let path = folder.join(format!("{name}{}", env::consts::EXE_SUFFIX));
    assert!(path.exists(), "there is no program `{name}` at `{}`", path.display());
    path
}

fn build() -> Result<PathBuf, String> {
    let folder = profile_folder();
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "bascule-testkit", "--package", "bascule-demo", "--bins"])
        .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
        .args(["--profile", profile(&folder)])
        .arg("--target-dir")
        .arg(folder.parent().expect("the profile folder is in the target folder"))
        .output()
        .expect("cargo starts");
    match built.status.success() {
        true => Ok(folder),
        false => Err(String::from_utf8_lossy(&built.stderr).into_owned()),
    }
}

/// Returns `target/debug` for a test at `target/debug/deps/name-hash` and for a program at `target/debug/name`.
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
    fn echo_server_serves_mcp_over_stdio() {
        let mut server = start(&[]);
        writeln!(server.stdin.take().unwrap(), "{CALL}").unwrap();
        let response = String::from_utf8(server.wait_with_output().unwrap().stdout).unwrap();
        assert!(response.contains(r#""text":"hi""#), "{response}");
    }

    #[test]
    fn echo_server_serves_http_and_keeps_the_connection() {
        let mut server = start(&["http", "127.0.0.1:0"]);
        let mut stream = connect(&mut server);
        for _ in 0..2 {
            let length = CALL.len();
            write!(stream, "POST /mcp HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{CALL}").unwrap();
            let mut block = [0; 4096];
            let count = stream.read(&mut block).unwrap();
            let response = String::from_utf8_lossy(&block[..count]);
            assert!(
                response.starts_with("HTTP/1.1 200 OK") && response.contains(r#""text":"hi""#),
                "{response}"
            );
        }
        stop(server);
    }

    #[test]
    fn raw_echo_servers_return_every_byte() {
        let mut pipe = start(&["raw"]);
        writeln!(pipe.stdin.take().unwrap(), "one\ntwo").unwrap();
        assert_eq!(pipe.wait_with_output().unwrap().stdout, b"one\ntwo\n");
        let mut socket = start(&["raw-tcp", "127.0.0.1:0"]);
        let mut stream = connect(&mut socket);
        stream.write_all(b"three\n").unwrap();
        let mut response = [0; 6];
        stream.read_exact(&mut response).unwrap();
        assert_eq!(&response, b"three\n");
        stop(socket);
    }
}
