"""The reference page of the reading commands lists their options and the verdict's limits."""

from pathlib import Path

import pytest
import typer

from tapewire.cli.app import app
from tapewire.cli.bench import LIMITS, _span

PAGE = (Path(__file__).resolve().parents[3] / "docs/reference/cli-read.md").read_text()
WHAT = {
    "append": "append",
    "one_way_spinning": "one way, reader spins",
    "one_way_sleeping": "one way, reader sleeps",
    "roll": "append that rolls",
}


@pytest.mark.parametrize("name", ["tail", "export", "replay", "snapshotter", "bench"])
def test_every_option_is_in_its_section(name):
    section = PAGE.partition(f"\n## tapewire {name}\n")[2].partition("\n## ")[0]
    command = typer.main.get_command(app).commands[name]
    options = {word for one in command.params for word in one.opts if word.startswith("--")}
    missing = {word for word in options - {"--help"} if f"`{word}" not in section}
    assert missing == set()


@pytest.mark.parametrize(("key", "percentile", "limit"), [limit[:3] for limit in LIMITS])
def test_every_limit_of_the_verdict_is_in_its_table(key, percentile, limit):
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {WHAT[key]} | p")]
    assert f"{percentile} {_span(limit)}" in row
