"""The reference page names every key of a snapshot."""

import re
from pathlib import Path

import tapewire as tw
from tapewire.monitor import Limits, Watch

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "cli.md"


def keys(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key != "metrics":
                yield from keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from keys(inner)


def test_every_key_of_a_snapshot_is_documented(tmp):
    with (
        tw.open_publisher(tmp / "md", segment_bytes=8192) as writer,
        tw.open_subscriber(tmp / "md", "late"),
    ):
        writer.append_batch(1, [b"x"] * 10)
        snapshot = Watch(tmp, limits=Limits(lag_records=1)).sample().to_dict()
    assert snapshot["alerts"]
    (section,) = re.findall(r"^## monitor\n(.*?)^## ", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    documented = set(re.findall(r"`(\w+)`", section))
    assert set(keys(snapshot)) - documented == set()
