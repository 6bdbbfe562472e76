"""Processes to kill, forked from a server that has already imported everything.

A fresh interpreter with Tapewire takes 100 ms; a fork of one takes 2. The server holds no queue and
runs no thread, so its children start as clean as a new process.
"""

import array
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0


class Line:
    """One end of a two-way pipe of text lines between a test and its child."""

    def __init__(self, sock):
        self._sock = sock
        self._pending = b""

    def fileno(self):
        return self._sock.fileno()

    def say(self, *words):
        self._sock.sendall((json.dumps(words) + "\n").encode())

    def hear(self, timeout=PATIENCE):
        """The next message as a list; None if the other end is closed."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._sock], [], [], left)[0]:
                raise TimeoutError(f"nothing heard for {timeout} s")
            got = self._sock.recv(65536)
            if not got:
                return None
            self._pending += got
        line, self._pending = self._pending.split(b"\n", 1)
        return json.loads(line)

    def expect(self, word, timeout=PATIENCE):
        """The rest of the next message, which must begin with `word`."""
        message = self.hear(timeout)
        assert message is not None, f"the child ended where {word!r} was expected"
        assert message[0] == word, f"expected {word!r}, received: {' '.join(map(str, message))}"
        return message[1:]

    def close(self):
        self._sock.close()


class Child:
    """A running child process."""

    def __init__(self, crew, pid, line):
        self._crew = crew
        self._pidfd = os.pidfd_open(
            pid
        )  # it remains a zombie until it is waited for, so the pid is still its own
        self.pid = pid
        self.line = line
        self.status = None

    def say(self, *words):
        self.line.say(*words)

    def expect(self, word, timeout=PATIENCE):
        return self.line.expect(word, timeout)

    def kill(self, signum=signal.SIGKILL):
        """Kill it and return its exit code: -9, unless it had ended by itself."""
        if self.status is None:
            os.kill(self.pid, signum)
        return self.wait()

    def wait(self, timeout=PATIENCE):
        """Its exit code, or the negative signal number."""
        if self.status is None:
            if not select.select([self._pidfd], [], [], timeout)[0]:
                raise TimeoutError(f"process {self.pid} did not end within {timeout} s")
            self.status = self._crew.reap(self.pid)
            os.close(self._pidfd)
        return self.status

    def last_words(self):
        """The output of a child that ended by itself; its traceback if it failed."""
        words = []
        try:
            while (message := self.line.hear(timeout=0.1)) is not None:
                words.append(" ".join(map(str, message)))
        except (TimeoutError, OSError):
            pass
        return "\n".join(words)


class Crew:
    """The test's side of the server."""

    def __init__(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        env = dict(os.environ, PYTHONPATH=str(ROOT), OPENBLAS_NUM_THREADS="1")
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.crew", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=env,
            cwd=ROOT,
        )
        theirs.close()
        self._sock = ours
        self._children = []

    def start(self, actor, **arguments):
        """Run `actor` ("module.function" of this directory) in a new process."""
        ours, theirs = socket.socketpair()
        request = json.dumps(["start", actor, arguments]).encode()
        socket.send_fds(self._sock, [request], [theirs.fileno()])
        theirs.close()
        child = Child(self, json.loads(self._sock.recv(65536)), Line(ours))
        self._children.append(child)
        return child

    def reap(self, pid):
        self._sock.send(json.dumps(["reap", pid, {}]).encode())
        return json.loads(self._sock.recv(65536))

    def dismiss(self):
        """Kill the remaining children, between two tests."""
        for child in self._children:
            if child.status is None:
                child.kill()
            child.line.close()
        self._children.clear()

    def close(self):
        self.dismiss()
        self._sock.close()
        self._server.wait(PATIENCE)


def _run_child(sock, actor, arguments):
    line = Line(sock)
    code = 1
    try:
        module, function = actor.rsplit(".", 1)
        getattr(importlib.import_module(f"tests.crash.{module}"), function)(line, **arguments)
        code = 0
    except SystemExit as error:
        code = error.code or 0
    except BaseException:
        try:
            line.say("failed", traceback.format_exc())
        except OSError:
            traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve(sock):
    importlib.import_module("tests.crash.actors")  # and with it tapewire and numpy, once for all
    while True:
        data, ancillary, _, _ = sock.recvmsg(
            65536, socket.CMSG_SPACE(array.array("i", [0]).itemsize)
        )
        if not data:
            return
        order, what, arguments = json.loads(data)
        if order == "reap":
            _, status = os.waitpid(what, 0)
            sock.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
            continue
        received = array.array("i", ancillary[0][2])[0]
        pid = os.fork()
        if pid == 0:
            sock.close()
            _run_child(socket.socket(fileno=received), what, arguments)
        os.close(received)
        sock.send(json.dumps(pid).encode())


if __name__ == "__main__":
    # Actors import the module under its own name, not as __main__.
    _serve(socket.socket(fileno=int(sys.argv[1])))
