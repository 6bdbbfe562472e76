"""Python programs in other processes, controlled line by line."""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Child:
    """A Python program with `argv[1:] = args`; it communicates by lines on stdin and stdout."""

    def __init__(self, program, *args):
        env = dict(os.environ, PYTHONPATH=str(ROOT), PYTHONUNBUFFERED="1")
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            cwd=ROOT,
        )
        self._pending = b""

    @property
    def pid(self):
        return self._process.pid

    @property
    def running(self):
        return self._process.poll() is None

    def line(self, timeout=30.0):
        """The next line of its output; fails if it ends or prints nothing."""
        deadline = time.monotonic() + timeout
        out = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([out], [], [], left)[0]:
                raise AssertionError(f"no line within {timeout} s, got {self._pending!r}")
            chunk = os.read(out, 65536)
            if not chunk:
                raise AssertionError(f"ended with {self._process.wait()}, got {self._pending!r}")
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode()

    def expect(self, text, timeout=30.0):
        got = self.line(timeout)
        assert got == text, got

    def send(self, text=""):
        self._process.stdin.write(text.encode() + b"\n")
        self._process.stdin.flush()

    def stop(self):
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        self._process.send_signal(signal.SIGCONT)

    def kill(self):
        self._process.kill()
        self._process.wait()

    def finish(self, timeout=30.0):
        """Wait for its end; its exit code must be 0."""
        self._process.stdin.close()
        code = self._process.wait(timeout)
        assert code == 0, f"exit code {code}"

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._process.stdin.close()


# A writer that appends on demand: each line of input is a count, "close" ends it.
WRITER = """
import sys
import tapewire as tw

with tw.open_publisher(sys.argv[1], segment_bytes=int(sys.argv[2])) as writer:
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "close":
            break
        for _ in range(int(line)):
            writer.append(1, b"%d" % writer.next_seq)
        print(writer.next_seq, flush=True)
print("closed", flush=True)
"""
