"""An OpenTelemetry collector over HTTP and gRPC, on the libraries of the protocol. Prints its ports, then each request.

Usage: collector.py FAILURES [CERTIFICATE KEY]. The first FAILURES requests get a transient error. With a certificate gRPC uses TLS.
"""

import base64
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc

lock = threading.Lock()
failures = int(sys.argv[1])


def is_refused():
    """Counts a request. The first ones are refused."""
    global failures
    with lock:
        failures -= 1
        return failures >= 0


def attributes(source):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in source.attributes}


def describe_span(span):
    assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    return {
        "name": span.name, "kind": span.kind, "trace": span.trace_id.hex(), "span": span.span_id.hex(),
        "parent": span.parent_span_id.hex(), "status": span.status.code, "message": span.status.message,
        "attributes": attributes(span),
    }


def describe_metric(metric):
    kind = metric.WhichOneof("data")
    data = getattr(metric, kind)
    points = []
    for point in data.data_points:
        assert 0 < point.start_time_unix_nano <= point.time_unix_nano
        described = {"attributes": attributes(point)}
        if kind == "histogram":
            assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
            assert sum(point.bucket_counts) == point.count
            described |= {"count": point.count, "sum": point.sum, "bounds": list(point.explicit_bounds)}
        else:
            described["value"] = getattr(point, point.WhichOneof("value"))
        points.append(described)
    return {
        "name": metric.name, "unit": metric.unit, "kind": kind, "points": points,
        "temporality": getattr(data, "aggregation_temporality", 0), "monotonic": getattr(data, "is_monotonic", False),
    }


def report(way, headers, request):
    """Prints the content of a request in one line."""
    found = {"way": way, "headers": headers, "resource": {}, "spans": [], "metrics": []}
    for resource in getattr(request, "resource_spans", []):
        found["resource"] = attributes(resource.resource)
        found["spans"] += [describe_span(span) for scope in resource.scope_spans for span in scope.spans]
    for resource in getattr(request, "resource_metrics", []):
        found["resource"] = attributes(resource.resource)
        found["metrics"] += [describe_metric(metric) for scope in resource.scope_metrics for metric in scope.metrics]
    with lock:
        print(json.dumps(found), flush=True)


class Service(trace_grpc.TraceServiceServicer, metrics_grpc.MetricsServiceServicer):
    def __init__(self, response):
        self.response = response

    def Export(self, request, context):
        if is_refused():
            context.abort(grpc.StatusCode.UNAVAILABLE, "later, please")
        report("grpc", dict(context.invocation_metadata()), request)
        return self.response()


def hex_ids(value):
    """The JSON of OTLP has ids in hexadecimal; the parser of protobuf wants Base64."""
    if isinstance(value, list):
        return [hex_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {
        key: base64.b64encode(bytes.fromhex(item)).decode() if key in ids else hex_ids(item)
        for key, item in value.items()
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        kind = metrics.ExportMetricsServiceRequest if "metrics" in self.path else trace.ExportTraceServiceRequest
        status, answer = (503, b"") if is_refused() else (200, b"")
        if status == 200:
            if self.headers["content-type"] == "application/json":
                request, answer = Parse(json.dumps(hex_ids(json.loads(body))), kind()), b"{}"
            else:
                assert self.headers["content-type"] == "application/x-protobuf"
                request = kind.FromString(body)
            headers = {name.lower(): value for name, value in self.headers.items()}
            report("http " + self.path, headers, request)
        self.send_response(status)
        self.send_header("content-type", self.headers["content-type"])
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=http.serve_forever, daemon=True).start()
server = grpc.server(ThreadPoolExecutor(4))
trace_grpc.add_TraceServiceServicer_to_server(Service(trace.ExportTraceServiceResponse), server)
metrics_grpc.add_MetricsServiceServicer_to_server(Service(metrics.ExportMetricsServiceResponse), server)
if len(sys.argv) > 2:
    certificate, key = (open(path, "rb").read() for path in sys.argv[2:4])
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
else:
    port = server.add_insecure_port("127.0.0.1:0")
server.start()
print(json.dumps({"http": http.server_address[1], "grpc": port}), flush=True)
# The test holds the other end.
sys.stdin.read()
