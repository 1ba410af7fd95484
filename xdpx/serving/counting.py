"""The counters of the server, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Counts:
    """The counters of one server."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "xdpx_requests",
            "Prediction requests by response status.",
            ["model", "status"],
            registry=registry,
        )
        self.rows = Counter("xdpx_rows", "Rows that were answered.", ["model"], registry=registry)
        self.seconds = Histogram(
            "xdpx_request_seconds", "From request to response.", ["model"], registry=registry, buckets=SECONDS
        )
        self.batch_rows = Histogram(
            "xdpx_batch_rows", "Rows that were computed together.", ["model"], registry=registry, buckets=ROWS
        )
        self.batch_seconds = Histogram(
            "xdpx_batch_seconds", "Time to compute a batch.", ["model"], registry=registry, buckets=SECONDS
        )
        self.tokens = Counter(
            "xdpx_tokens", "Tokens that were computed, padding included.", ["model"], registry=registry
        )
        self.waiting = Gauge("xdpx_waiting_rows", "Rows waiting for an answer.", ["model"], registry=registry)
        self.loads = Counter(
            "xdpx_loads", "Number of times weights were loaded.", ["model", "result"], registry=registry
        )

    def text(self) -> bytes:
        """Return all counters in Prometheus' text format."""
        return generate_latest(self._registry)

    def batch(self, model: str, rows: int, tokens: int, seconds: float) -> None:
        """Count a batch that was computed."""
        self.batch_rows.labels(model).observe(rows)
        self.batch_seconds.labels(model).observe(seconds)
        self.tokens.labels(model).inc(tokens)
