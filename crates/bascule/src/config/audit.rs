//! `bascule.audit`: the log that every call is written to before it is sent.

use std::path::PathBuf;

use super::expand::VariableExpander;
use super::reader::FieldReader;
use super::transport::expand;

/// The settings of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSettings {
    /// The absolute path of the log.
    pub path: PathBuf,
    /// Calls wait until their lines are on the disk, not only handed to the operating system.
    pub fsync: bool,
}

pub(super) fn read_audit(field: FieldReader, variables: &VariableExpander) -> Option<AuditSettings> {
    let mut object = field.read_object()?;
    if object.peek("path").is_none() {
        object.field().error("`path` is missing: name the file of the log");
    }
    let file = |field: FieldReader| match expand(&field, field.read_string()?, variables)? {
        path if path.is_empty() || path.ends_with('/') => field.expected("the path of a file"),
        path => Some(variables.absolute_path(&path)),
    };
    let path = object.read("path", file);
    let fsync = object.read("fsync", FieldReader::read_bool).unwrap_or_default();
    object.warn_unknown_keys();
    Some(AuditSettings { path: path?, fsync })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, settings};
    use super::*;

    // req: TR-01
    #[test]
    fn reads_audit() {
        let read =
            |bridge: &str| settings(&format!(r#"{{"mcpServers": {{}}, "bascule": {bridge}}}"#)).bridge.audit;
        assert_eq!(read("{}"), None);
        let expected = AuditSettings { path: "/a/log".into(), fsync: true };
        assert_eq!(read(r#"{"audit": {"path": "/a/log", "fsync": true}}"#), Some(expected));
    }

    // req: TR-01
    #[test]
    fn refuses_audit_without_a_file() {
        check(
            r#"{"mcpServers": {}, "bascule": {"audit": {}}}"#,
            "1:41: bascule.audit: `path` is missing: name the file of the log",
        );
    }
}
