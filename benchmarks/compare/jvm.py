"""The alternatives written in Java: downloaded and compiled once, run as two JVMs that always end.

`java/` is a small Maven project. Maven downloads the jars named in its pom.xml, javac compiles the
sources; both are stored in `build/bench-java/`, under a name derived from their content.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from benchmarks.harness import pin, unpin
from benchmarks.machine import ROOT

PROJECT = Path(__file__).parent / "java"
BUILT = ROOT / "build" / "bench-java"
OLDEST_JAVA = 17
STAMP_BYTES = 8
START_S = 120  # for two JVMs to start and warm up, on a busy machine

# Two JVMs on two cores have no core to spare: a collector without threads of its own (neither
# alternative makes garbage while it sends and receives), and no statistics file to be written back.
FLAGS = (
    *("-Xms1g", "-Xmx1g", "-XX:+UseSerialGC", "-XX:-UsePerfData"),
    # The JVM's own warnings go to stderr: stdout is for the output of the programs.
    *("-XX:+DisplayVMOutputToStderr", "-Xlog:disable", "-Xlog:all=warning:stderr"),
)


# ---- availability --------------------------------------------------------------------------------
def missing() -> str | None:
    """Why the alternatives cannot run here, or None; downloads and compiles them if necessary."""
    if shutil.which("java") is None:
        return "no java on PATH"
    version = java_version()
    if int(version.split(".")[0]) < OLDEST_JAVA:
        return f"Java {version} is too old: needs {OLDEST_JAVA}"
    return None if _home().exists() else _build(_home())


def java_version() -> str:
    """The version that `java -version` prints: 17.0.15, or 1.8.0_402 for Java 8."""
    run = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "([\d.]+)', run.stderr)
    if found is None:
        raise RuntimeError(f"java -version printed no version: {_tail(run.stderr)}")
    return found[1]


def pinned(artifact: str) -> str:
    """The version that pom.xml names."""
    for dependency in ElementTree.parse(PROJECT / "pom.xml").iter("dependency"):
        if dependency.findtext("artifactId") == artifact:
            return dependency.findtext("version", "")
    raise KeyError(artifact)


def _sources() -> list[Path]:
    return sorted(PROJECT.rglob("*.java"))


def _home() -> Path:
    digest = hashlib.sha256()
    for path in (PROJECT / "pom.xml", *_sources()):
        digest.update(path.read_bytes())
    return BUILT / digest.hexdigest()[:12]


@functools.cache  # after a failure (no network), the next alternative does not try again
def _build(home: Path) -> str | None:
    """Download and compile; None, or the reason why that failed."""
    for tool in ("javac", "mvn"):
        if shutil.which(tool) is None:
            return f"no {tool} on PATH"
    home.parent.mkdir(parents=True, exist_ok=True)
    # Built in a temporary directory: two runs may build at once, and an interrupted build must not
    # look complete.
    made = Path(tempfile.mkdtemp(dir=home.parent, prefix="new-"))
    pom, libraries = PROJECT / "pom.xml", made / "lib"
    # The full name of the goal: Maven looks up a short name on the network.
    fetch = ["mvn", "--quiet", "--batch-mode", "--file", str(pom)]
    fetch += ["org.apache.maven.plugins:maven-dependency-plugin:copy-dependencies"]
    fetch += ["-DincludeScope=runtime", f"-DoutputDirectory={libraries}"]
    compile_ = ["javac", "--release", str(OLDEST_JAVA), "-cp", f"{libraries}/*"]
    compile_ += ["-d", str(made / "classes"), *map(str, _sources())]
    try:
        for command in (fetch, compile_):
            run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
            if run.returncode != 0:
                return f"{command[0]} failed: {_first_error(run.stdout + run.stderr)}"
        with contextlib.suppress(FileExistsError):
            made.rename(home)
    except subprocess.TimeoutExpired as slow:
        return f"{slow.cmd[0]} took more than {slow.timeout:.0f} s"
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return None


def _first_error(output: str) -> str:
    plain = re.sub(r"\x1b\[[\d;]*m", "", output)  # Maven colours its output even in a pipe
    lines = [line.strip() for line in plain.splitlines()]
    return next((line for line in lines if "error" in line.lower()), "no message")[:300]


def _tail(text: str) -> str:
    return text.strip()[-2000:] or "no message"


# ---- running -------------------------------------------------------------------------------------
class _Jvm:
    """One JVM, confined to one core: its compiler's threads must not disturb the other end."""

    def __init__(self, command: list[str], core: int) -> None:
        self.name = " ".join(command[command.index("-cp") + 2 :][:3])
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 — closed by end()
        self._heard = b""
        pin(core)  # inherited
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
            )
        finally:
            unpin()

    def fileno(self) -> int:
        assert self.process.stdout is not None
        return self.process.stdout.fileno()

    def go(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: the next wait reports why
            self.process.stdin.write(b"go\n")

    def read(self) -> bool:
        """Read its output; False at the end."""
        said = os.read(self.fileno(), 65536)
        self._heard += said
        return bool(said)

    def line(self) -> str | None:
        line, end, rest = self._heard.partition(b"\n")
        if not end:
            return None
        self._heard = rest
        return line.decode().strip()

    def failure(self) -> RuntimeError:
        self._errors.seek(0)
        said = _tail(self._errors.read().decode(errors="replace"))
        return RuntimeError(f"{self.name} ended with {self.process.returncode}: {said}")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self._errors):
            if pipe is not None:
                pipe.close()


class _Crew:
    """The JVMs of one measurement, and their deadline."""

    def __init__(self, flags: tuple[str, ...], seconds: float) -> None:
        home = _home()
        if not home.exists() and (reason := missing()):
            raise RuntimeError(reason)
        self._java = ["java", *FLAGS, *flags, "-cp", f"{home}/classes:{home}/lib/*"]
        self._deadline = time.monotonic() + seconds
        self._running: list[_Jvm] = []
        self._all: list[_Jvm] = []

    def start(self, core: int, *program: object) -> _Jvm:
        jvm = _Jvm([*self._java, *map(str, program)], core)
        self._all.append(jvm)
        self._running.append(jvm)
        return jvm

    def hear(self, speaker: _Jvm) -> str:
        """Its next line. Fails if another of the JVMs fails meanwhile."""
        while (line := speaker.line()) is None:
            self._wait()
            if speaker not in self._running and speaker.line() is None:
                raise speaker.failure()
        return line

    def join(self, jvm: _Jvm) -> None:
        """Wait until it has ended with exit code 0."""
        while jvm in self._running:
            self._wait()

    def _wait(self) -> None:
        left = max(0.0, self._deadline - time.monotonic())
        ready, _, _ = select.select(self._running, [], [], left)
        if not ready:
            names = ", ".join(jvm.name for jvm in self._running)
            raise TimeoutError(f"still running when the time was up: {names}")
        for jvm in ready:
            if not jvm.read():
                self._running.remove(jvm)
                if jvm.process.wait(timeout=10) != 0:
                    raise jvm.failure()

    def end(self) -> None:
        for jvm in self._all:
            jvm.end()


@contextlib.contextmanager
def _crew(flags: tuple[str, ...], seconds: float) -> Iterator[_Crew]:
    crew = _Crew(flags, seconds)
    try:
        yield crew
    finally:
        crew.end()


def _run_pair(
    alternative: str, flags: tuple[str, ...], directory: Path, size: int, messages: int, gap_ns: int
) -> str:
    """Run sender and receiver, see `Main.java`; the receiver's result line."""
    if size < STAMP_BYTES:
        raise ValueError(f"a message carries its stamp: size={size}, at least {STAMP_BYTES}")
    seconds = START_S + 3 * messages * max(gap_ns, 1_000) / 1e9
    with _crew(flags, seconds) as crew:
        main = ("tapewire.compare.Main", alternative)
        receiver = crew.start(1, *main, "receive", directory, size, messages, gap_ns)
        _expect("ready", crew.hear(receiver))
        sender = crew.start(0, *main, "send", directory, size, messages, gap_ns)
        _expect("warm", crew.hear(receiver))
        sender.go()
        result = crew.hear(receiver)
        crew.join(sender)
        receiver.go()
        crew.join(receiver)
    return result


def _expect(word: str, said: str) -> None:
    if said != word:
        raise RuntimeError(f"the receiver was to say {word!r} and said {said!r}")


def one_way(
    alternative: str, flags: tuple[str, ...], messages: int, size: int, gap_ns: int, directory: Path
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Nanoseconds from when each message was due until the other JVM received it."""
    if gap_ns <= 0:
        raise ValueError(f"a paced run needs a gap: gap_ns={gap_ns}")
    with tempfile.TemporaryDirectory(dir=directory, prefix=f"{alternative}-") as own:
        _expect("written", _run_pair(alternative, flags, Path(own), size, messages, gap_ns))
        return read_latencies(Path(own) / "latencies", messages)


def throughput(
    alternative: str, flags: tuple[str, ...], messages: int, size: int, directory: Path
) -> float:
    """Records per second, from before the first is sent until the last has arrived."""
    with tempfile.TemporaryDirectory(dir=directory, prefix=f"{alternative}-") as own:
        return float(_run_pair(alternative, flags, Path(own), size, messages, gap_ns=0))


def alone(
    flags: tuple[str, ...], main: str, names: tuple[str, ...], *arguments: object
) -> dict[str, list[float]]:
    """One JVM on one core that prints a line `name value value …` for each of `names`."""
    said: dict[str, list[float]] = {}
    with _crew(flags, 300) as crew:
        jvm = crew.start(0, main, *arguments)
        for name in names:
            word, *values = crew.hear(jvm).split()
            _expect(name, word)
            said[name] = [float(value) for value in values]
        crew.join(jvm)
    return said


def read_latencies(path: Path, expected: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Read a file of little-endian 64-bit integers, as written by `Main.write`."""
    values = np.fromfile(path, "<i8").astype(np.int64)
    if len(values) * 8 != path.stat().st_size or len(values) != expected:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, not {expected} integers")
    return values
