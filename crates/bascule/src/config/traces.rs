//! `bascule.traces`: the store of calls and server logs.

use std::path::PathBuf;
use std::time::Duration;

use bascule_store::Retention;

use super::expand::VariableExpander;
use super::reader::FieldReader;
use super::transport::expand;

/// The settings of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceSettings {
    /// `off`: nothing is recorded.
    pub is_off: bool,
    /// The absolute folder of the file. `None`: the user's state folder.
    pub path: Option<PathBuf>,
    pub retention: Retention,
    pub capture: Capture,
    /// The longest captured text.
    pub max_captured_bytes: usize,
    /// Patterns of further property names whose values are hidden.
    pub redact: Vec<String>,
}

/// The content of calls that is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Capture {
    /// Sizes only.
    #[default]
    None,
    Arguments,
    Results,
    All,
}

impl Capture {
    pub(crate) fn has_arguments(self) -> bool {
        matches!(self, Self::Arguments | Self::All)
    }

    pub(crate) fn has_results(self) -> bool {
        matches!(self, Self::Results | Self::All)
    }
}

impl Default for TraceSettings {
    fn default() -> Self {
        Self {
            is_off: false,
            path: None,
            retention: Retention::default(),
            capture: Capture::None,
            max_captured_bytes: 16 << 10,
            redact: Vec::new(),
        }
    }
}

pub(super) fn read_traces(field: FieldReader, variables: &VariableExpander) -> Option<TraceSettings> {
    let mut object = field.read_object()?;
    let default = TraceSettings::default();
    let folder = |field: FieldReader| match expand(&field, field.read_string()?, variables)? {
        path if path.is_empty() => field.expected("the path of a folder"),
        path => Some(variables.absolute_path(&path)),
    };
    let words = [
        ("none", Capture::None),
        ("arguments", Capture::Arguments),
        ("results", Capture::Results),
        ("all", Capture::All),
    ];
    let patterns = |field: FieldReader| field.read_list(|field| field.read_string().map(str::to_owned));
    let settings = TraceSettings {
        is_off: object.read("off", FieldReader::read_bool).unwrap_or(default.is_off),
        path: object.read("path", folder),
        retention: object.read("retention", read_retention).unwrap_or(default.retention),
        capture: object.read("capture", |field| field.read_one_of(&words)).unwrap_or(default.capture),
        max_captured_bytes: object
            .read("maxCapturedBytes", FieldReader::read_positive)
            .map_or(default.max_captured_bytes, |bytes| bytes as usize),
        redact: object.read("redact", patterns).unwrap_or_default(),
    };
    object.warn_unknown_keys();
    Some(settings)
}

fn read_retention(field: FieldReader) -> Option<Retention> {
    let mut object = field.read_object()?;
    let default = Retention::default();
    let days = |days: u32| Duration::from_secs(u64::from(days) * 24 * 3600);
    let retention = Retention {
        max_age: object.read("maxAgeDays", FieldReader::read_positive).map_or(default.max_age, days),
        max_spans: object.read("maxSpans", FieldReader::read_positive).map_or(default.max_spans, u64::from),
        max_bytes: object
            .read("maxMb", FieldReader::read_positive)
            .map_or(default.max_bytes, |mb| u64::from(mb) << 20),
    };
    object.warn_unknown_keys();
    Some(retention)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, settings};
    use super::*;

    // req: TR-01
    #[test]
    fn reads_traces() {
        let read = |traces: &str| {
            settings(&format!(r#"{{"mcpServers": {{}}, "bascule": {{"traces": {traces}}}}}"#)).bridge.traces
        };
        assert_eq!(read("{}"), TraceSettings::default());
        let retention =
            Retention { max_age: Duration::from_secs(7 * 86_400), max_spans: 10, max_bytes: 5 << 20 };
        let expected = TraceSettings {
            is_off: true,
            path: Some("/t".into()),
            retention,
            capture: Capture::Arguments,
            max_captured_bytes: 100,
            redact: vec!["*ssn*".into()],
        };
        let text = r#"{"off": true, "path": "/t", "retention": {"maxAgeDays": 7, "maxSpans": 10, "maxMb": 5},
            "capture": "arguments", "maxCapturedBytes": 100, "redact": ["*ssn*"]}"#;
        assert_eq!(read(text), expected);
    }

    #[test]
    fn refuses_unknown_capture() {
        check(
            r#"{"mcpServers": {}, "bascule": {"traces": {"capture": "some"}}}"#,
            r#"1:54: bascule.traces.capture: must be "none", "arguments", "results" or "all", is "some""#,
        );
    }
}
