//! The environment variables of OpenTelemetry that say where spans and metrics go.

use std::time::Duration;

use bascule_mcp::{HttpEndpoint, InvalidEndpoint};
use percent_encoding::percent_decode_str;

use super::message::{OtlpMessage, attribute};
use crate::unique_number::next_unique_number;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
/// Variables of the standard that have no effect here. A user who sets one of them is told.
const UNSUPPORTED: [&str; 5] =
    ["COMPRESSION", "CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY", "METRICS_TEMPORALITY_PREFERENCE"];

/// The collector of a bridge.
#[derive(Debug, Clone)]
pub struct OtlpSettings {
    /// `None`: no spans are sent.
    pub(super) traces: Option<SignalSettings>,
    /// `None`: no metrics are sent.
    pub(super) metrics: Option<SignalSettings>,
    pub(super) metric_interval: Duration,
    pub(super) resource: OtlpResource,
    /// Variables that are set and have no effect.
    pub(crate) unsupported: Vec<String>,
}

/// The delivery of spans, or of metrics.
#[derive(Debug, Clone)]
pub(super) struct SignalSettings {
    pub(super) endpoint: HttpEndpoint,
    pub(super) protocol: OtlpProtocol,
    /// The longest time for one request.
    pub(super) timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OtlpProtocol {
    Grpc,
    HttpProtobuf,
    HttpJson,
}

/// The kind of data that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

/// A variable with a value that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("`{variable}`: {reason}")]
pub struct InvalidOtlpSettings {
    variable: String,
    reason: String,
}

/// The attributes of this bridge among all sources of spans and metrics.
#[derive(Debug, Clone)]
pub(super) struct OtlpResource(Vec<(String, String)>);

type Variable<'a> = dyn Fn(&str) -> Option<String> + 'a;

impl OtlpSettings {
    /// Reads the environment. Returns `None` if it names no endpoint.
    pub fn from_environment(variable: &Variable) -> Result<Option<Self>, InvalidOtlpSettings> {
        let variable = &|name: &str| {
            variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let traces = SignalSettings::find(Signal::Traces, variable)?;
        let metrics = SignalSettings::find(Signal::Metrics, variable)?;
        if traces.is_none() && metrics.is_none() {
            return Ok(None);
        }
        Ok(Some(Self {
            traces,
            metrics,
            metric_interval: read_millis("OTEL_METRIC_EXPORT_INTERVAL", variable)?
                .unwrap_or(DEFAULT_INTERVAL),
            resource: OtlpResource::find(variable),
            unsupported: unsupported(variable),
        }))
    }
}

impl Signal {
    const fn name(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
        }
    }

    /// The end of the URL over HTTP.
    const fn path(self) -> &'static str {
        match self {
            Self::Traces => "v1/traces",
            Self::Metrics => "v1/metrics",
        }
    }
}

impl SignalSettings {
    /// Returns `None` if the signal has no endpoint, or is switched off.
    fn find(signal: Signal, variable: &Variable) -> Result<Option<Self>, InvalidOtlpSettings> {
        let exporter = format!("OTEL_{}_EXPORTER", signal.name());
        match variable(&exporter).as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(other) => return Err(invalid(&exporter, format!("must be `otlp` or `none`, is `{other}`"))),
        }
        // A variable of the signal counts before that of all signals.
        let own = |name: &str| {
            [format!("OTEL_EXPORTER_OTLP_{}_{name}", signal.name()), format!("OTEL_EXPORTER_OTLP_{name}")]
                .into_iter()
                .find(|name| variable(name).is_some())
        };
        let value = |name: &str| own(name).and_then(|name| variable(&name));
        let Some(source) = own("ENDPOINT") else { return Ok(None) };
        let protocol = value("PROTOCOL").map_or(Ok(OtlpProtocol::HttpProtobuf), |text| {
            OtlpProtocol::parse(&text).map_err(|reason| invalid(&own("PROTOCOL").unwrap_or_default(), reason))
        })?;
        let given = variable(&source).unwrap_or_default();
        let url = match protocol {
            OtlpProtocol::Grpc => with_scheme(given, value("INSECURE").as_deref()),
            // That of the signal is the whole URL.
            _ if source == "OTEL_EXPORTER_OTLP_ENDPOINT" => {
                format!("{}/{}", given.trim_end_matches('/'), signal.path())
            }
            _ => given,
        };
        let headers = parse_pairs(&value("HEADERS").unwrap_or_default());
        let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let endpoint = HttpEndpoint::new(&url, headers).map_err(|error| match &error {
            InvalidEndpoint::Header(_) => invalid(&own("HEADERS").unwrap_or_default(), error.to_string()),
            InvalidEndpoint::Url { .. } => invalid(&source, error.to_string()),
        })?;
        let timeout = own("TIMEOUT").map(|name| read_millis(&name, variable)).transpose()?.flatten();
        Ok(Some(Self { endpoint, protocol, timeout: timeout.unwrap_or(DEFAULT_TIMEOUT) }))
    }
}

impl OtlpProtocol {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "grpc" => Ok(Self::Grpc),
            "http/protobuf" => Ok(Self::HttpProtobuf),
            "http/json" => Ok(Self::HttpJson),
            other => Err(format!("must be `grpc`, `http/protobuf` or `http/json`, is `{other}`")),
        }
    }
}

/// Completes the target of gRPC, which may be a name and a port alone.
fn with_scheme(target: String, insecure: Option<&str>) -> String {
    let is_insecure = insecure.is_some_and(|value| value.eq_ignore_ascii_case("true"));
    match target.contains("://") {
        true => target,
        false if is_insecure => format!("http://{target}"),
        false => format!("https://{target}"),
    }
}

fn read_millis(name: &str, variable: &Variable) -> Result<Option<Duration>, InvalidOtlpSettings> {
    let read = |text: String| match text.parse::<u32>() {
        Ok(millis) if millis > 0 => Ok(Duration::from_millis(millis.into())),
        _ => Err(invalid(name, format!("must be a number of milliseconds, is `{text}`"))),
    };
    variable(name).map(read).transpose()
}

fn invalid(variable: &str, reason: String) -> InvalidOtlpSettings {
    InvalidOtlpSettings { variable: variable.to_owned(), reason }
}

/// Returns the variables that are set and have no effect. Each may be set for one signal alone.
fn unsupported(variable: &Variable) -> Vec<String> {
    let names = UNSUPPORTED.iter().flat_map(|name| {
        ["", "TRACES_", "METRICS_"].map(|signal| format!("OTEL_EXPORTER_OTLP_{signal}{name}"))
    });
    let is_default = |value: &str| ["none", "cumulative"].contains(&value.to_ascii_lowercase().as_str());
    names.filter(|name| variable(name).is_some_and(|value| !is_default(&value))).collect()
}

/// Parses `name=value,name=value` with percent-encoded values.
fn parse_pairs(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    let decode = |value: &str| percent_decode_str(value.trim()).decode_utf8_lossy().into_owned();
    pairs.map(|(name, value)| (name.trim().to_owned(), decode(value))).collect()
}

impl Default for OtlpResource {
    fn default() -> Self {
        let own = [("service.name", "bascule"), ("service.version", env!("CARGO_PKG_VERSION"))];
        Self(own.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
    }
}

impl OtlpResource {
    fn find(variable: &Variable) -> Self {
        let mut resource = Self::default();
        // Two bridges must not write into one series.
        resource.set("service.instance.id", format!("{:032x}", next_unique_number()));
        for (key, value) in parse_pairs(&variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default()) {
            resource.set(&key, value);
        }
        if let Some(name) = variable("OTEL_SERVICE_NAME") {
            resource.set("service.name", name);
        }
        resource
    }

    fn set(&mut self, key: &str, value: String) {
        match self.0.iter_mut().find(|(own, _)| own == key) {
            Some((_, own)) => *own = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    pub(super) fn to_message(&self) -> OtlpMessage {
        let attributes: Vec<OtlpMessage> = self.0.iter().map(|(key, value)| attribute(key, value)).collect();
        OtlpMessage::default().with(1, "attributes", attributes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:4318/p/");

    fn read(variables: &[(&str, &str)]) -> Result<Option<OtlpSettings>, InvalidOtlpSettings> {
        OtlpSettings::from_environment(&|name: &str| {
            let found = variables.iter().find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    /// Checks protocol, endpoint and timeout of both signals.
    #[track_caller]
    fn check(variables: &[(&str, &str)], traces: &str, metrics: &str) {
        let shown = |signal: Option<&SignalSettings>| {
            signal.map_or("none".to_owned(), |SignalSettings { endpoint, protocol, timeout }| {
                format!("{protocol:?} {endpoint:?} {timeout:?}").replace("HttpEndpoint", "")
            })
        };
        let read = read(variables).unwrap();
        let read = read.as_ref();
        assert_eq!(shown(read.and_then(|settings| settings.traces.as_ref())), traces);
        assert_eq!(shown(read.and_then(|settings| settings.metrics.as_ref())), metrics);
    }

    // req: TR-01
    #[test]
    fn endpoint_is_that_of_the_environment() {
        let (traces, metrics) =
            ("HttpProtobuf (http://h:4318/p/v1/traces) 10s", "HttpProtobuf (http://h:4318/p/v1/metrics) 10s");
        check(&[], "none", "none");
        check(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")], "none", "none");
        check(&[BASE], traces, metrics);
        check(&[BASE, ("OTEL_SDK_DISABLED", "true")], "none", "none");
        check(&[BASE, ("OTEL_METRICS_EXPORTER", "none")], traces, "none");
        check(
            &[BASE, ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t/x")],
            "HttpProtobuf (https://t/x) 10s",
            metrics,
        );
        check(
            &[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "https://t/x")],
            "none",
            "HttpProtobuf (https://t/x) 10s",
        );
    }

    // req: TR-01
    #[test]
    fn variables_of_a_signal_count_before_those_of_all() {
        let variables = [
            BASE,
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "1000"),
        ];
        check(&variables, "Grpc (http://h:4318/p/) 250ms", "HttpJson (http://h:4318/p/v1/metrics) 1s");
    }

    // req: TR-01
    #[test]
    fn target_of_grpc_may_have_no_scheme() {
        let target =
            [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "h:4317"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
        check(&target, "Grpc (https://h:4317/) 10s", "none");
        let insecure = [&target[..], &[("OTEL_EXPORTER_OTLP_INSECURE", "TRUE")]].concat();
        check(&insecure, "Grpc (http://h:4317/) 10s", "none");
    }

    // req: TR-01
    #[test]
    fn unusable_values_are_named() {
        for (name, value, expected) in [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "h:4317", "is not a usable URL"),
            (
                "OTEL_EXPORTER_OTLP_PROTOCOL",
                "http",
                "must be `grpc`, `http/protobuf` or `http/json`, is `http`",
            ),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "0", "must be a number of milliseconds, is `0`"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1m", "must be a number of milliseconds, is `1m`"),
            ("OTEL_TRACES_EXPORTER", "zipkin", "must be `otlp` or `none`, is `zipkin`"),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "a b=secret",
                "header `a b` has a name or a value that HTTP does not allow",
            ),
        ] {
            let error = read(&[BASE, (name, value)]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{name}`: ")) && error.contains(expected), "{error}");
        }
    }

    // req: TR-01
    #[test]
    fn variables_without_effect_are_named() {
        let variables = [
            BASE,
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
            ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
        ];
        let settings = read(&variables).unwrap().unwrap();
        assert_eq!(
            settings.unsupported,
            ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_CERTIFICATE"]
        );
    }

    // req: TR-01
    #[test]
    fn resource_has_the_names_of_the_environment() {
        let value = |variables: &[(&str, &str)], key: &str| {
            let OtlpResource(all) = read(&[&[BASE], variables].concat()).unwrap().unwrap().resource;
            all.into_iter().find_map(|(own, value)| (own == key).then_some(value))
        };
        assert_eq!(value(&[], "service.name").as_deref(), Some("bascule"));
        assert_eq!(value(&[], "service.instance.id").map(|id| id.len()), Some(32));
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,team=x%20y");
        assert_eq!(value(&[attributes], "service.name").as_deref(), Some("a"));
        assert_eq!(value(&[attributes], "team").as_deref(), Some("x y"));
        let name = ("OTEL_SERVICE_NAME", "b");
        assert_eq!(value(&[attributes, name], "service.name").as_deref(), Some("b"));
    }

    // req: TR-01
    #[test]
    fn pairs_are_percent_decoded() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            parse_pairs("authorization=Bearer%20x=y, tenant = a"),
            [pair("authorization", "Bearer x=y"), pair("tenant", "a")]
        );
        assert!(parse_pairs("").is_empty());
    }
}
