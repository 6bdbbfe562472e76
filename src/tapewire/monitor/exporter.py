"""Prometheus metrics: `tapewire metrics BUS`. Needs the extra `metrics` (prometheus-client).

Each scrape samples the bus; nothing happens between scrapes. Names follow the conventions of
Prometheus: base units, `_total` for counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.registry import Collector

from tapewire.monitor.alerts import ERROR_COUNTERS
from tapewire.monitor.httpd import Answer, LocalServer, Request
from tapewire.monitor.sampler import Watch
from tapewire.monitor.snapshot import QueueView, ReaderView

__all__ = ["QUEUE_METRICS", "READER_METRICS", "BusCollector", "exposition", "serve"]

Number = float | int | None


@dataclass(frozen=True)
class _Metric:
    name: str  # without _total
    kind: Literal["gauge", "counter"]
    help: str
    of: Callable[..., Number]  # returns None if unknown, and the sample is omitted

    @property
    def exposed(self) -> str:
        return self.name + ("_total" if self.kind == "counter" else "")


def _counter(name: str, help_text: str, counter: str) -> _Metric:
    return _Metric(name, "counter", help_text, lambda q: (q.metrics or {}).get(counter))


def _gauge(name: str, help_text: str, of: Callable[..., Number]) -> _Metric:
    return _Metric(name, "gauge", help_text, of)


QUEUE_METRICS = (
    _gauge("tapewire_queue_last_seq", "Sequence number of the last record.", lambda q: q.last_seq),
    _gauge(
        "tapewire_queue_last_record_timestamp_seconds",
        "Timestamp of the last record, since the epoch.",
        lambda q: None if q.last_timestamp_ns is None else q.last_timestamp_ns / 1e9,
    ),
    _gauge("tapewire_queue_stored_records", "Records in the log now.", lambda q: q.records),
    _counter("tapewire_queue_records", "Records appended by this writer.", "records"),
    _counter(
        "tapewire_queue_written_bytes",
        "Bytes appended by this writer: headers, payloads and padding.",
        "bytes_written",
    ),
    _counter("tapewire_queue_rolls", "How often this writer started a new segment.", "rolls"),
    _counter(
        "tapewire_queue_prealloc_misses",
        "Rolls that had to create their segment themselves.",
        "prealloc_misses",
    ),
    _counter("tapewire_queue_wakes", "Appends that woke sleeping readers.", "wakes"),
    _counter(
        "tapewire_queue_retired_segments", "Segments deleted by retention.", "segments_retired"
    ),
    _counter(
        "tapewire_queue_gaps",
        "Places where sequence numbers were missing when this writer was opened.",
        "gaps_found",
    ),
    _counter(
        "tapewire_queue_damaged_spans",
        "Damaged places that were replaced by a PAD when this writer was opened.",
        "damaged_spans",
    ),
    _gauge("tapewire_queue_segments", "Segments of the log.", lambda q: q.segments),
    _gauge(
        "tapewire_queue_disk_bytes", "Disk space of the queue's directory.", lambda q: q.disk_bytes
    ),
    _gauge(
        "tapewire_queue_problems",
        "Number of things about the queue that could not be read.",
        lambda q: len(q.problems) + (q.error is not None),
    ),
    _gauge(
        "tapewire_writer_up",
        "1 while a process holds the queue's lock, else 0.",
        lambda q: q.writer and int(q.writer.state in ("live", "stale")),
    ),
    _gauge(
        "tapewire_writer_closed",
        "1 if the last writer closed the queue properly, else 0.",
        lambda q: q.writer and int(q.writer.state == "closed"),
    ),
    _gauge(
        "tapewire_writer_epoch",
        "How many writers the queue has had.",
        lambda q: q.writer and q.writer.epoch,
    ),
    _gauge(
        "tapewire_writer_heartbeat_age_seconds",
        "How long the writer's heartbeat has not changed between scrapes.",
        lambda q: q.writer and q.writer.heartbeat_age,
    ),
)

READER_METRICS = (
    _gauge(
        "tapewire_reader_lag_records",
        "Records from the committed position to the end of the log.",
        lambda r: r.lag_records,
    ),
    _gauge(
        "tapewire_reader_lag_bytes",
        "Bytes from the committed position to the end of the log.",
        lambda r: r.lag_bytes,
    ),
    _gauge(
        "tapewire_reader_lag_segments",
        "Segments from the committed position to the end of the log.",
        lambda r: r.lag_segments,
    ),
    _gauge(
        "tapewire_reader_lag_seconds",
        "Timestamp of the last record minus that of the first uncommitted one.",
        lambda r: r.lag_seconds,
    ),
    _gauge("tapewire_reader_next_seq", "Sequence number that it reads next.", lambda r: r.next_seq),
    _gauge(
        "tapewire_reader_up",
        "1 while a process holds the reader's name, else 0.",
        lambda r: int(r.state in ("live", "stale")),
    ),
    _gauge("tapewire_reader_pinned", "1 if retention waits for it.", lambda r: int(r.pinned)),
    _gauge(
        "tapewire_reader_heartbeat_age_seconds",
        "How long the reader's heartbeat has not changed between scrapes.",
        lambda r: r.heartbeat_age,
    ),
)


class BusCollector(Collector):
    """Samples the bus whenever the registry is collected.

    Example:
        >>> import tapewire as tw
        >>> with tw.open_publisher(tmp / "md", segment_bytes=1 << 20) as writer:
        ...     _ = writer.append(1, b"a"), writer.append(1, b"b")
        ...     text = exposition(BusCollector(Watch(tmp))).decode()
        >>> [line for line in text.splitlines() if line.startswith("tapewire_queue_last_seq")]
        ['tapewire_queue_last_seq{queue="md"} 1.0']
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not sample the bus."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Sample the bus and return all metrics."""
        from tapewire import __version__

        snapshot = self._watch.sample()
        for metric in QUEUE_METRICS:
            yield _family(metric, ["queue"], ((q, [q.name]) for q in snapshot.queues))
        readers = [(r, [q.name, r.name]) for q in snapshot.queues for r in q.readers]
        for metric in READER_METRICS:
            yield _family(metric, ["queue", "reader"], readers)

        errors = CounterMetricFamily(
            "tapewire_queue_errors", "Errors of this writer.", labels=["queue", "kind"]
        )
        for queue in snapshot.queues:
            for counter in ERROR_COUNTERS:
                if queue.metrics is not None and counter in queue.metrics:
                    kind = counter.removesuffix("_errors")
                    errors.add_metric([queue.name, kind], queue.metrics[counter])
        yield errors

        for name, help_text, field in (
            ("tapewire_filesystem_size_bytes", "Size of a filesystem with queues.", "total_bytes"),
            (
                "tapewire_filesystem_free_bytes",
                "Free space on it, without the blocks reserved for root.",
                "free_bytes",
            ),
        ):
            family = GaugeMetricFamily(name, help_text, labels=["mountpoint"])
            for filesystem in snapshot.filesystems:
                family.add_metric([filesystem.path], getattr(filesystem, field))
            yield family

        alerts = GaugeMetricFamily(
            "tapewire_alerts", "Alerts as `tapewire monitor` shows them.", labels=["severity"]
        )
        for severity in ("critical", "warning", "info"):
            found = [alert for alert in snapshot.alerts if alert.severity == severity]
            alerts.add_metric([severity], len(found))
        yield alerts
        yield GaugeMetricFamily(
            "tapewire_scrape_duration_seconds",
            "Duration of this scrape.",
            value=snapshot.look_seconds,
        )
        build = GaugeMetricFamily("tapewire_build_info", "Always 1.", labels=["version"])
        build.add_metric([__version__], 1)
        yield build


def _family(
    metric: _Metric,
    labels: list[str],
    subjects: Iterable[tuple[QueueView | ReaderView, list[str]]],
) -> Metric:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=labels)
    for subject, values in subjects:
        value = metric.of(subject)
        if value is not None:
            family.add_metric(values, value)
    return family


def exposition(collector: BusCollector) -> bytes:
    """Sample once and return the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)


def serve(
    watch: Watch, *, bind: str = "127.0.0.1", port: int = 0, allow_hosts: Iterable[str] = ()
) -> LocalServer:
    """Serve ``/metrics`` until closed."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BusCollector(watch))

    def metrics(request: Request) -> Answer:
        try:
            encode, content_type = choose_encoder(request.accept)
        except (TypeError, ValueError):  # raised for an Accept header with an invalid version
            encode, content_type = choose_encoder("")
        return Answer(content_type, encode(registry))

    def home(request: Request) -> Answer:
        return Answer("text/plain; charset=utf-8", b"tapewire metrics: scrape /metrics\n")

    return LocalServer(
        {"/metrics": metrics, "/": home}, bind=bind, port=port, allow_hosts=allow_hosts
    )
