"""Small programs in new interpreters: under strace, or when a complete process must end."""

import os
import re
import shutil
import subprocess
import sys
import textwrap

import pytest

from tests.crash.crew import ROOT


def python(code, *arguments, before=(), check=True, **options):
    """Run `code` with `sys.argv[1:] == arguments`; `before` is a command that runs it."""
    env = dict(os.environ, PYTHONPATH=str(ROOT), OPENBLAS_NUM_THREADS="1")
    done = subprocess.run(
        [*before, sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        **options,
    )
    assert not check or done.returncode == 0, f"ended with {done.returncode}:\n{done.stderr}"
    return done


def calls_between_markers(code, *arguments, log, trace=None):
    """The system calls of the thread that wrote BEGIN, up to its END, one line each."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    only = ["-e", f"trace=write,{trace}"] if trace else []
    before = ["strace", "-f", "-qq", *only, "-o", str(log)]
    code = "import os\nmark = os.open('/dev/null', os.O_WRONLY)\n" + textwrap.dedent(code)
    python(code, *arguments, before=before)
    lines = [line.split(None, 1) for line in log.read_text().splitlines()]
    (begin,) = [i for i, (_, call) in enumerate(lines) if re.match(r'write\(\d+, "BEGIN"', call)]
    (end,) = [i for i, (_, call) in enumerate(lines) if re.match(r'write\(\d+, "END"', call)]
    thread = lines[begin][0]
    # strace splits a call that other threads' calls interrupt: its second half is not another call.
    return [
        call
        for tid, call in lines[begin + 1 : end]
        if tid == thread and not call.startswith("<... ")
    ]
