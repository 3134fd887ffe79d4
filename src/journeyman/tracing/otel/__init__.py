"""OpenTelemetry spans, as traces."""
