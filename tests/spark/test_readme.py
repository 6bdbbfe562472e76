"""README.md as a reader types it: every block in order, in one directory."""

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_docs import ROOT, blocks_of

README = ROOT / "README.md"
TAPEWIRE = Path(sys.executable).parent / "tapewire"
# These build Tapewire, which the tests have done already.
SETUP = {"make demo", "make test", "pip install ."}
ENDED_BY_A_SIGNAL = "Ctrl-C ends it"
EXIT_CODE = re.compile(r"exit code (\d)")  # 0 where the comment of a command states none
# `print(…)  # OUTPUT` in a Python block; what follows an ellipsis is not shown.
SHOWN = re.compile(r"^ *print\(.*\)  # (?P<output>[^…\n]*)", re.MULTILINE)
PROSE = "rows, rate, parts done"  # the one comment after a `print` that describes its output


def shell_lines(code):
    """(command, comment) of each line of a `console` block."""
    for line in code.splitlines():
        assert line.startswith("$ "), f"only commands are shown: {line}"
        command, _, comment = line[2:].partition("  # ")
        yield command.strip(), comment


def run_command(command, comment, env):
    """Run it to its end, or to its first line of output where only Ctrl-C ends it."""
    name, *arguments = shlex.split(command)
    assert name == "tapewire", f"neither a command of Tapewire nor one of {SETUP}: {command}"
    stated = EXIT_CODE.search(comment)
    code = int(stated[1]) if stated else 0
    if ENDED_BY_A_SIGNAL not in comment:
        done = subprocess.run(
            [TAPEWIRE, *arguments], capture_output=True, text=True, env=env, check=False
        )
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return
    with subprocess.Popen([TAPEWIRE, *arguments], stdout=subprocess.PIPE, env=env) as running:
        assert running.stdout.readline(), f"{command} ended without output"
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=30)
    assert running.returncode == code, f"{command}: {running.returncode}"


def run_python(code, line, namespace):
    """Run a block; each output that a comment shows must be printed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        # The line numbers of a failure are those of the page.
        exec(compile("\n" * line + code, str(README), "exec"), namespace)
    for shown in SHOWN.finditer(code):
        expected = shown["output"].strip()
        assert expected.startswith(PROSE) or expected in out.getvalue(), out.getvalue()


@pytest.mark.timeout(300)  # three Sparks, one after the other
@pytest.mark.usefixtures("own_messages", "no_spark")
def test_the_readme_runs_as_typed(tmp, monkeypatch):
    monkeypatch.chdir(tmp)
    env = dict(os.environ, PYTHONUNBUFFERED="1")
    namespace = {"__name__": "__main__"}
    left_out = set()
    for language, _, line, code in blocks_of(README):
        if language == "python":
            run_python(code, line, namespace)
            continue
        assert language == "console", f"{README}:{line}: what runs {language}?"
        for command, comment in shell_lines(code):
            if command in SETUP:
                left_out.add(command)
            else:
                run_command(command, comment, env)
    assert left_out == SETUP
    assert (tmp / "quality/_report.html").exists()  # the last step has run
