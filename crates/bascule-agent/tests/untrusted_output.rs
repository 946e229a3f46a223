//! Programs that use tool output as text do not compile, and fail for the right reason. `rustc` itself is the judge.
//!
//! The doc tests of `ToolOutput` show the same to readers; stable `rustdoc` does not check their error codes.

#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Imports and a line that is right, so that only the last line can be wrong.
const PROGRAM: &str = "\
use bascule_agent::{Conversation, ModelText, SystemText, ToolCallError, ToolOutput, ToolResultBlock, Turn, UserText};
pub fn program(output: ToolOutput, block: ToolResultBlock, error: ToolCallError, conversation: &mut Conversation) {
    let _ = (|text: &str| (UserText::new(text), SystemText::new(text), ModelText::new(text)), &output, &block, &error);
    conversation.push(Turn::User(UserText::new(\"hello\")));
    LINE
}
";

// req: BU-04
#[test]
fn right_uses_compile() {
    for line in [
        r#"conversation.push(Turn::ToolResults(vec![output.into_block("t"), block, error.into_block("u")]));"#,
        r#"assert!(!output.is_error() && block.trust() == output.trust());"#,
        r#"println!("{error} {output:?}");"#,
    ] {
        assert_eq!(errors_of(line), Vec::<String>::new(), "{line}");
    }
}

// req: BU-04
#[test]
fn wrong_uses_do_not_compile() {
    for (line, code) in [
        ("UserText::new(output);", "E0277"),
        ("SystemText::new(output);", "E0277"),
        ("ModelText::new(output);", "E0277"),
        ("UserText::new(block);", "E0277"),
        ("SystemText::new(block);", "E0277"),
        ("UserText::new(error);", "E0277"),
        ("conversation.push(Turn::User(output));", "E0308"),
        ("conversation.push(Turn::User(block));", "E0308"),
        ("Conversation::new(block);", "E0308"),
        (r#"let _ = format!("{output}");"#, "E0277"),
        (r#"let _ = format!("{block}");"#, "E0277"),
        ("let _ = output.to_string();", "E0599"),
        ("let _ = String::from(output);", "E0277"),
        ("let _: String = block.into();", "E0277"),
        ("let _: &str = &output;", "E0308"),
        ("let _: &str = &block;", "E0308"),
        ("let _: &str = output.as_ref();", "E0599"),
        ("let _ = block.to_anthropic().to_string();", "E0599"),
        ("let _ = UserText::new(block.to_openai());", "E0277"),
        // The fields are private.
        (r#"let ToolOutput { is_error: _, .. } = output;"#, "E0451"),
    ] {
        let errors = errors_of(line);
        assert!(!errors.is_empty(), "`{line}` compiles");
        assert!(errors.iter().all(|error| error == code), "`{line}`: {errors:?}, not {code}");
    }
}

/// Compiles the program with this line and returns the codes of its errors.
fn errors_of(line: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("program.rs");
    std::fs::write(&source, PROGRAM.replace("LINE", line)).unwrap();
    let libraries = library_folder();
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
        .args(["--edition", "2024", "--crate-type", "lib", "--emit", "metadata", "--error-format", "json"])
        .arg("--extern")
        .arg(format!("bascule_agent={}", newest_library(&libraries).display()))
        .arg("-L")
        .arg(format!("dependency={}", libraries.display()))
        .arg("--out-dir")
        .args([folder.path(), &source])
        .output()
        .expect("`rustc` is installed, since this test was compiled");
    let messages = String::from_utf8(output.stderr).unwrap();
    let codes: Vec<_> = messages.lines().filter_map(error_code).collect();
    assert_eq!(output.status.success(), codes.is_empty(), "{messages}");
    codes
}

/// Returns the code of an error; `None` for warnings and summaries.
fn error_code(message: &str) -> Option<String> {
    let message: serde_json::Value = serde_json::from_str(message).unwrap();
    let is_error = message["level"] == "error" && !message["spans"].as_array().unwrap().is_empty();
    is_error.then(|| message["code"]["code"].as_str().unwrap_or("no code").to_owned())
}

/// The folder of this test and of the libraries that it is linked with.
fn library_folder() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Cargo has just built the library for this test. Older ones of other settings may lie beside it.
fn newest_library(folder: &Path) -> PathBuf {
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("libbascule_agent-") && name.ends_with(".rlib")
    };
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(is_library);
    let modified =
        |path: &PathBuf| path.metadata().and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    paths.max_by_key(modified).expect("the library is built before its tests")
}
