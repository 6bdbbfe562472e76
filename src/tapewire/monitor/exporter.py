"""What Prometheus scrapes: `tapewire metrics BUS`. Needs the extra `metrics` (prometheus-client).

A scrape is a look: nothing happens between scrapes, and every scraper sees the bus as it is then.
Names follow the rules of Prometheus: base units, `_total` for what only grows.
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
    of: Callable[..., Number]  # None: not known, so not exposed

    @property
    def exposed(self) -> str:
        return self.name + ("_total" if self.kind == "counter" else "")


def _counter(name: str, help_text: str, counter: str) -> _Metric:
    return _Metric(name, "counter", help_text, lambda q: (q.metrics or {}).get(counter))


def _gauge(name: str, help_text: str, of: Callable[..., Number]) -> _Metric:
    return _Metric(name, "gauge", help_text, of)


QUEUE_METRICS = (
    _gauge("tapewire_queue_last_seq", "Number of the last record.", lambda q: q.last_seq),
    _gauge(
        "tapewire_queue_last_record_timestamp_seconds",
        "Time stamp of the last record, since the epoch.",
        lambda q: None if q.last_timestamp_ns is None else q.last_timestamp_ns / 1e9,
    ),
    _gauge("tapewire_queue_stored_records", "Records in the log now.", lambda q: q.records),
    _counter("tapewire_queue_records", "Records appended by this writer.", "records"),
    _counter(
        "tapewire_queue_written_bytes",
        "Bytes appended by this writer: headers, payloads and padding.",
        "bytes_written",
    ),
    _counter("tapewire_queue_rolls", "How often this writer began a new segment.", "rolls"),
    _counter(
        "tapewire_queue_prealloc_misses",
        "Rolls that had to make their segment themselves.",
        "prealloc_misses",
    ),
    _counter("tapewire_queue_wakes", "Appends that woke sleeping readers.", "wakes"),
    _counter(
        "tapewire_queue_retired_segments", "Segments deleted by retention.", "segments_retired"
    ),
    _counter(
        "tapewire_queue_gaps",
        "Places where numbers were missing when this writer was opened.",
        "gaps_found",
    ),
    _counter(
        "tapewire_queue_damaged_spans",
        "Damaged places that were fenced off when this writer was opened.",
        "damaged_spans",
    ),
    _gauge("tapewire_queue_segments", "Segments of the log.", lambda q: q.segments),
    _gauge(
        "tapewire_queue_disk_bytes", "Disk space of the queue's folder.", lambda q: q.disk_bytes
    ),
    _gauge(
        "tapewire_queue_problems",
        "Things about the queue that could not be read.",
        lambda q: len(q.problems) + (q.error is not None),
    ),
    _gauge(
        "tapewire_writer_up",
        "1 while a process holds the queue's lock, else 0.",
        lambda q: q.writer and int(q.writer.state in ("live", "stale")),
    ),
    _gauge(
        "tapewire_writer_closed",
        "1 when the last writer closed the queue properly, else 0.",
        lambda q: q.writer and int(q.writer.state == "closed"),
    ),
    _gauge(
        "tapewire_writer_epoch",
        "How many writers the queue has had.",
        lambda q: q.writer and q.writer.epoch,
    ),
    _gauge(
        "tapewire_writer_heartbeat_age_seconds",
        "How long scrapes have seen the writer's heartbeat stand still.",
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
        "Time stamp of the last record minus that of the first uncommitted one.",
        lambda r: r.lag_seconds,
    ),
    _gauge("tapewire_reader_next_seq", "Number that it reads next.", lambda r: r.next_seq),
    _gauge(
        "tapewire_reader_up",
        "1 while a process holds the reader's name, else 0.",
        lambda r: int(r.state in ("live", "stale")),
    ),
    _gauge("tapewire_reader_pinned", "1 when retention waits for it.", lambda r: int(r.pinned)),
    _gauge(
        "tapewire_reader_heartbeat_age_seconds",
        "How long scrapes have seen the reader's heartbeat stand still.",
        lambda r: r.heartbeat_age,
    ),
)


class BusCollector(Collector):
    """Looks at the bus whenever the registry is collected.

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
        """Nothing: registering must not look at the bus."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every metric of every queue, of now."""
        from tapewire import __version__

        snapshot = self._watch.sample()
        for metric in QUEUE_METRICS:
            yield _family(metric, ["queue"], ((q, [q.name]) for q in snapshot.queues))
        readers = [(r, [q.name, r.name]) for q in snapshot.queues for r in q.readers]
        for metric in READER_METRICS:
            yield _family(metric, ["queue", "reader"], readers)

        errors = CounterMetricFamily(
            "tapewire_queue_errors", "What went wrong in this writer.", labels=["queue", "kind"]
        )
        for queue in snapshot.queues:
            for counter in ERROR_COUNTERS:
                if queue.metrics is not None and counter in queue.metrics:
                    kind = counter.removesuffix("_errors")
                    errors.add_metric([queue.name, kind], queue.metrics[counter])
        yield errors

        for name, help_text, field in (
            ("tapewire_filesystem_size_bytes", "Size of a filesystem with queues.", "total_bytes"),
            ("tapewire_filesystem_free_bytes", "Room on it, but for root's share.", "free_bytes"),
        ):
            room = GaugeMetricFamily(name, help_text, labels=["mountpoint"])
            for filesystem in snapshot.filesystems:
                room.add_metric([filesystem.path], getattr(filesystem, field))
            yield room

        alerts = GaugeMetricFamily(
            "tapewire_alerts", "Alerts as `tapewire monitor` shows them.", labels=["severity"]
        )
        for severity in ("critical", "warning", "info"):
            found = [alert for alert in snapshot.alerts if alert.severity == severity]
            alerts.add_metric([severity], len(found))
        yield alerts
        yield GaugeMetricFamily(
            "tapewire_scrape_duration_seconds", "What this look took.", value=snapshot.look_seconds
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
    """One look in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry)


def serve(
    watch: Watch, *, bind: str = "127.0.0.1", port: int = 0, allow_hosts: Iterable[str] = ()
) -> LocalServer:
    """Answer scrapes at ``/metrics`` until closed."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BusCollector(watch))

    def metrics(request: Request) -> Answer:
        try:
            encode, content_type = choose_encoder(request.accept)
        except (TypeError, ValueError):  # it compares versions, and takes any text for one
            encode, content_type = choose_encoder("")
        return Answer(content_type, encode(registry))

    def home(request: Request) -> Answer:
        return Answer("text/plain; charset=utf-8", b"tapewire metrics: scrape /metrics\n")

    return LocalServer(
        {"/metrics": metrics, "/": home}, bind=bind, port=port, allow_hosts=allow_hosts
    )
