//! Help, completions, manual pages, and the output on a terminal.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use bascule_testkit::{Behaviour, Script, ScriptedStdio};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::json;

use super::check_output;
use crate::support::{Bascule, demo_server};

/// Runs a command whose stdout and stderr are a terminal of this width. Returns what it wrote.
fn run_on_terminal(bascule: &Bascule, arguments: &[&str], columns: u16) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    tcsetwinsize(&master, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let terminal = File::options().read(true).write(true).open(name).unwrap();
    let mut command = bascule.command(arguments);
    command.stdout(Stdio::from(terminal.try_clone().unwrap())).stderr(Stdio::from(terminal));
    let mut child = command.env("TERM", "xterm").spawn().unwrap();
    drop(command);
    let written = std::thread::spawn(move || read_all(master));
    child.wait().unwrap();
    written.join().unwrap()
}

/// Reads until the other side is closed, which is an error of a terminal.
fn read_all(master: OwnedFd) -> String {
    let (mut file, mut written, mut buffer) = (File::from(master), Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = file.read(&mut buffer) {
        written.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8_lossy(&written).into_owned()
}

fn without_config() -> Bascule {
    Bascule::with_text("not needed").finding_config()
}

// req: US-04
#[test]
fn help_shows_commands() {
    let output = without_config().run(&["help"]);
    check_output(&output, 0, "Usage: bascule", "");
    check_output(&output, 0, "completions", "");
    check_output(&without_config().run(&["help", "call"]), 0, "Usage: bascule call", "");
    let output = without_config().run(&["help", "completions"]);
    assert!(!output.stdout.contains("--json") && !output.stdout.contains("--config"), "{output:?}");
}

// req: US-04
#[test]
fn prints_completions_of_every_shell() {
    for (shell, part) in [
        ("bash", "complete -F _bascule"),
        ("zsh", "#compdef bascule"),
        ("fish", "complete -c bascule"),
        ("elvish", "bascule"),
        ("powershell", "bascule"),
    ] {
        let output = without_config().run(&["completions", shell]);
        check_output(&output, 0, part, "");
        assert!(output.stdout.contains("correlation-id") && output.stderr.is_empty(), "{shell}");
    }
    check_output(&without_config().run(&["completions", "cmd"]), 2, "", "possible values: bash");
}

// req: US-04
#[test]
fn prints_and_writes_manual_pages() {
    check_output(&without_config().run(&["man"]), 0, ".TH bascule 1", "");
    check_output(&without_config().run(&["man", "call"]), 0, "correlation\\-id", "");
    check_output(&without_config().run(&["man", "nothing"]), 2, "", "there is no command `nothing`");
    let bascule = without_config();
    let output = bascule.run(&["man", "--out", "pages"]);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), ""), "{output:?}");
    for page in ["bascule.1", "bascule-call.1", "bascule-serve.1"] {
        assert!(bascule.folder().join("pages").join(page).is_file(), "{page}");
    }
}

// req: US-04
#[test]
fn spinner_shows_progress_and_time_on_a_terminal() {
    let slow = Behaviour::text("done").after_progress(2).after_delay(std::time::Duration::from_millis(1500));
    let server = ScriptedStdio::new(Script::new().tools(["x"]).calls("x", [slow.clone(), slow]));
    let bascule = Bascule::with_server("s", server.entry());
    let written = run_on_terminal(&bascule, &["call", "s:x"], 60);
    assert!(written.contains("calling s:x  2") && written.contains("  1 s"), "{written:?}");
    assert!(written.ends_with("done\r\n"), "{written:?}");
    let plain = run_on_terminal(&bascule.env("NO_COLOR", "1"), &["call", "s:x"], 60);
    assert_eq!(plain, "done\r\n", "no escapes");
}

// req: US-01
#[test]
fn causes_and_confinement_are_broken_between_words() {
    let bascule = Bascule::with_server("s", json!({ "command": "python3 -m x" })).env("NO_COLOR", "1");
    let written = run_on_terminal(&bascule, &["check"], 50);
    let check = written.rsplit("\u{1b}[K").next().unwrap();
    // Only a piece that can be copied may be longer.
    let is_broken =
        |line: &str| line.chars().count() <= 50 || line.contains('`') || !line.trim().contains(' ');
    assert!(check.lines().all(is_broken), "{check}");
    assert!(check.contains("\n    `python3 -m x`: "), "{check}");
}

// req: US-04
#[test]
fn tables_fit_the_terminal() {
    let bascule = Bascule::with_server("notes", demo_server("notes")).env("NO_COLOR", "1");
    let written = run_on_terminal(&bascule, &["tools"], 40);
    assert!(written.contains("notes:search_notes") && written.contains('…'), "{written:?}");
    assert!(written.lines().all(|line| line.chars().count() <= 40), "{written:?}");
}
