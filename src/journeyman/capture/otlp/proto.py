"""OpenTelemetry's messages, from the one place that says what to install where they are missing."""

from journeyman.errors import MissingExtra

try:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
    from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span
except ImportError as error:  # pragma: no cover - the development environment has it
    raise MissingExtra(f"reading OpenTelemetry needs {error.name}: pip install 'journeyman[serve]'") from error

__all__ = [
    "AnyValue",
    "DecodeError",
    "ExportLogsServiceRequest",
    "ExportLogsServiceResponse",
    "ExportTraceServiceRequest",
    "ExportTraceServiceResponse",
    "KeyValue",
    "LogRecord",
    "ResourceSpans",
    "Span",
]
