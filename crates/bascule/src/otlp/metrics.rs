//! The metrics of a bridge as one `ExportMetricsServiceRequest`: the durations of calls by the semantic conventions for MCP, and
//! the figures of `/metrics` under their names with dots.

use bascule_model::ToolId;

use super::message::{FieldValue, OtlpMessage, attribute, scope};
use super::settings::OtlpResource;
use crate::McpBridgeAdapter;
use crate::metrics::{BOUNDS, Figure, FigurePoint, OutcomeCounts, ToolCounts, figures};

/// Values count from the start of the bridge.
const CUMULATIVE: u32 = 2;

/// The time that values cover, in nanoseconds since 1970.
#[derive(Clone, Copy)]
pub(super) struct CoveredTime {
    pub(super) start: u64,
    pub(super) end: u64,
}

pub(super) fn metrics_message(
    bridge: &McpBridgeAdapter,
    resource: &OtlpResource,
    covered: CoveredTime,
) -> OtlpMessage {
    let tools = bridge.fleet.metrics.tool_counts();
    let mut metrics = vec![
        durations(
            "mcp.client.operation.duration",
            "The durations of calls to servers, refused ones included.",
            histogram_points(&tools, |counts| &counts.ended, covered),
        ),
        durations(
            "mcp.server.operation.duration",
            "The durations of calls of MCP clients.",
            histogram_points(&tools, |counts| &counts.served, covered),
        ),
    ];
    metrics.extend(figures(bridge).iter().map(|figure| figure_message(figure, covered)));
    let in_scope = OtlpMessage::default().with(1, "scope", scope()).with(2, "metrics", metrics);
    let of_resource = OtlpMessage::default().with(1, "resource", resource.to_message()).with(
        2,
        "scopeMetrics",
        vec![in_scope],
    );
    OtlpMessage::default().with(1, "resourceMetrics", vec![of_resource])
}

fn durations(name: &str, description: &str, points: Vec<OtlpMessage>) -> OtlpMessage {
    let histogram = OtlpMessage::default().with(1, "dataPoints", points).with(
        2,
        "aggregationTemporality",
        FieldValue::Enum(CUMULATIVE),
    );
    OtlpMessage::default()
        .with(1, "name", name)
        .with(2, "description", description)
        .with(3, "unit", "s")
        .with(9, "histogram", histogram)
}

/// Returns one point for each tool and outcome.
fn histogram_points(
    tools: &[(ToolId, ToolCounts)],
    outcomes: fn(&ToolCounts) -> &[OutcomeCounts],
    covered: CoveredTime,
) -> Vec<OtlpMessage> {
    let all = tools.iter().flat_map(|(id, counts)| outcomes(counts).iter().map(move |outcome| (id, outcome)));
    all.map(|(id, outcome)| histogram_point(id, outcome, covered)).collect()
}

fn histogram_point(id: &ToolId, outcome: &OutcomeCounts, covered: CoveredTime) -> OtlpMessage {
    let mut attributes = vec![
        attribute("mcp.method.name", "tools/call"),
        attribute("gen_ai.operation.name", "execute_tool"),
        attribute("gen_ai.tool.name", id.tool()),
        attribute("bascule.server", id.server()),
    ];
    attributes.extend(outcome.code.as_deref().map(|code| attribute("error.type", error_type(code))));
    let durations = &outcome.durations;
    let bounds = BOUNDS.iter().map(|(micros, _)| *micros as f64 / 1e6).collect();
    covered
        .add_to(OtlpMessage::default())
        .with(4, "count", FieldValue::Fixed(durations.calls()))
        .with(5, "sum", FieldValue::Double(durations.seconds()))
        .with(6, "bucketCounts", FieldValue::FixedList(durations.buckets.into()))
        .with(7, "explicitBounds", FieldValue::DoubleList(bounds))
        .with(9, "attributes", attributes)
}

/// The conventions have a name of their own for a failure that a tool reports.
fn error_type(code: &str) -> &str {
    if code == "TOOL_ERROR" { "tool_error" } else { code }
}

fn figure_message(figure: &Figure, covered: CoveredTime) -> OtlpMessage {
    let points: Vec<OtlpMessage> = figure.points.iter().map(|point| number_point(point, covered)).collect();
    let values = OtlpMessage::default().with(1, "dataPoints", points);
    let message = OtlpMessage::default().with(1, "name", figure.name).with(2, "description", figure.help);
    match figure.is_counter {
        true => {
            let sum = values.with(2, "aggregationTemporality", FieldValue::Enum(CUMULATIVE)).with(
                3,
                "isMonotonic",
                FieldValue::Flag(true),
            );
            message.with(7, "sum", sum)
        }
        false => message.with(5, "gauge", values),
    }
}

fn number_point(point: &FigurePoint, covered: CoveredTime) -> OtlpMessage {
    let attributes: Vec<OtlpMessage> =
        point.labels.iter().map(|(name, value)| attribute(&format!("bascule.{name}"), value)).collect();
    covered.add_to(OtlpMessage::default()).with(6, "asInt", FieldValue::Fixed(point.value)).with(
        7,
        "attributes",
        attributes,
    )
}

impl CoveredTime {
    fn add_to(self, point: OtlpMessage) -> OtlpMessage {
        point.with(2, "startTimeUnixNano", FieldValue::Fixed(self.start)).with(
            3,
            "timeUnixNano",
            FieldValue::Fixed(self.end),
        )
    }
}
