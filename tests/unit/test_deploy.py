"""The units and the Procfile refer to programs, options and files that exist."""

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from tapewire.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
SYSTEMD = ROOT / "deploy" / "systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))
INSTALLED = "/opt/tapewire/"


def unit(path):
    parsed = configparser.ConfigParser(interpolation=None, strict=False)
    parsed.optionxform = str
    parsed.read(path)
    return parsed


def started_by_units():
    for path in UNITS:
        yield path.name, shlex.split(unit(path)["Service"]["ExecStart"])


def started_by_procfile():
    for line in (ROOT / "deploy" / "Procfile").read_text().splitlines():
        name, _, command = line.partition(": ")
        yield f"Procfile {name}", shlex.split(command)


COMMANDS = [*started_by_units(), *started_by_procfile()]


def options_of(words):
    return {word for word in words if word.startswith("--")}


@pytest.mark.parametrize(("where", "command"), COMMANDS, ids=[where for where, _ in COMMANDS])
def test_a_command_that_is_started_exists_with_its_options(where, command):
    program, what, *rest = command
    if where.endswith(".service"):
        assert program.startswith(f"{INSTALLED}.venv/bin/")
    if Path(program).name == "python":
        help_text = subprocess.run(
            [sys.executable, ROOT / what, "--help"], capture_output=True, text=True, check=True
        ).stdout
        known = set(re.findall(r"--[a-z-]+", help_text))
    else:
        assert Path(program).name == "tapewire"
        commands = typer.main.get_command(app).commands
        assert what in commands
        known = {name for parameter in commands[what].params for name in parameter.opts}
    assert options_of(rest) <= known


def test_every_unit_may_lock_memory_or_only_reads():
    for path in UNITS:
        service = unit(path)["Service"]
        only_looks = path.stem in ("tapewire-metrics", "tapewire-snapshotter")
        assert service.get("LimitMEMLOCK") == "infinity" or only_looks


def test_every_unit_is_hardened_by_its_name():
    common = unit(SYSTEMD / "tapewire-.service.d" / "10-common.conf")["Service"]
    assert common["NoNewPrivileges"] == "yes"
    assert common["Restart"] == "always"
    assert all(path.name.startswith("tapewire-") for path in UNITS)


@pytest.fixture
def installed(tmp):
    """The units as on a host, with this tree as the installation."""
    shutil.copytree(SYSTEMD, tmp / "units")
    here = str(Path(sys.executable).parent)
    for path in (tmp / "units").rglob("*.*"):
        if path.is_file():
            text = path.read_text().replace(f"{INSTALLED}.venv/bin", here)
            path.write_text(re.sub("^(User|Group)=tapewire", r"\1=root", text, flags=re.MULTILINE))
    return tmp / "units"


def test_systemd_reports_no_problem_in_the_units(installed):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    names = [path.name.replace("@.", "@alpha.") for path in UNITS]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(installed / name) for name in names)],
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if "tapewire" in line]
    assert complaints == []
    assert done.returncode == 0, done.stderr
