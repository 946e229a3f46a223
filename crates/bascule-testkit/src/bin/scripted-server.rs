//! Serves the script in the file of its one argument over stdin and stdout.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(script) => bascule_testkit::serve(Path::new(&script)),
        None => {
            eprintln!("usage: scripted-server SCRIPT.json");
            ExitCode::from(64)
        }
    }
}
