"""What a session is given: settings by where it runs, and the surroundings of its JVM."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tapewire.errors import InvalidOption
from tapewire.spark.sessions.masters import is_loopback, local_cores

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EVERYWHERE", "environment", "heap_bytes", "of", "private_folder"]

# Wherever it runs. A user's own settings go before all of these.
EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",  # days of an archive are UTC days
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",  # a job run again replaces its own part
}

_GIB = 1 << 30
_LOG4J = Path(__file__).with_name("log4j2.properties")


def of(master: str, *, ui: bool) -> dict[str, str]:
    """All that a session started here has unless its user says otherwise."""
    folder = private_folder()
    settings = EVERYWHERE | {
        "spark.master": master,
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",  # jobs show their own
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / f"warehouse-{os.getpid()}"),
    }
    if is_loopback(master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    if master.startswith("local"):
        cores = local_cores(master) or len(os.sched_getaffinity(0))
        settings |= {
            "spark.driver.memory": f"{heap_bytes(memory_bytes()) >> 20}m",
            # 200, Spark's own, is for clusters: on two cores every micro-batch would pay for them.
            "spark.sql.shuffle.partitions": str(2 * cores),
            # Where Spark sees the sizes (not in streams) it cuts finer and joins what is small.
            "spark.sql.adaptive.coalescePartitions.initialPartitionNum": str(max(64, 2 * cores)),
        }
    return settings


def environment(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Variables that the JVM and its Python processes must see; what is set already stays.

    Spark takes ``spark.pyspark.python`` in its submit script alone, hence the variables here.
    """
    python = settings.get("spark.pyspark.python") or environ.get("PYSPARK_PYTHON", sys.executable)
    driver = settings.get("spark.pyspark.driver.python") or environ.get(
        "PYSPARK_DRIVER_PYTHON", sys.executable
    )
    variables = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": driver}
    if is_loopback(settings.get("spark.master", "")):
        # Spark's page listens on every address unless this says where.
        variables["SPARK_LOCAL_IP"] = environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    return variables


def heap_bytes(memory: int) -> int:
    """A quarter of the machine, 1 to 4 GiB: the tape is read beside the heap, not through it.

    Example:
        >>> heap_bytes(16 << 30) >> 30, heap_bytes(2 << 30) >> 30, heap_bytes(512 << 30) >> 30
        (4, 1, 4)
    """
    return min(max(memory // 4, _GIB), 4 * _GIB)


def memory_bytes() -> int:
    """Of this machine, or of the container around this process where that is less."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            said = Path(limit).read_text().strip()
        except OSError:  # the other version of cgroups, or none
            continue
        if said.isdecimal():
            memory = min(memory, int(said))
    return memory


def private_folder() -> Path:
    """Where Spark may spill: this user's alone. Spark removes what it puts there.

    One a user rather than one a session: a killed process leaves nothing to be swept. ``TMPDIR``
    moves it, and the setting ``spark.local.dir`` or the variable ``SPARK_LOCAL_DIRS`` replaces it.
    """
    folder = Path(tempfile.gettempdir()) / f"tapewire-spark-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise InvalidOption(
            "the folder for Spark's scratch files must be this user's own",
            path=str(folder),
            hint="remove it, or set TMPDIR to a folder of yours",
        )
    if stat.S_IMODE(found.st_mode) != 0o700:
        folder.chmod(0o700)
    return folder
