"""Default settings of a session, by its master, and the environment variables of its JVM."""

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

__all__ = ["EVERYWHERE", "defaults", "heap_bytes", "jvm_environment", "scratch_directory"]

# For every master. Settings of the user override all of these.
EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",  # days of an archive are UTC days
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",  # a repeated job replaces only its part
}

_GIB = 1 << 30
_LOG4J = Path(__file__).with_name("log4j2.properties")


def defaults(master: str, *, ui: bool) -> dict[str, str]:
    """The settings of a session that is started here, unless the user overrides them."""
    directory = scratch_directory()
    settings = EVERYWHERE | {
        "spark.master": master,
        "spark.ui.enabled": str(ui).lower(),
        "spark.ui.showConsoleProgress": "false",  # jobs show their own progress
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / f"warehouse-{os.getpid()}"),
    }
    if is_loopback(master):
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
    if master.startswith("local"):
        cores = local_cores(master) or len(os.sched_getaffinity(0))
        settings |= {
            "spark.driver.memory": f"{heap_bytes(memory_bytes()) >> 20}m",
            # Spark's default of 200 would cost each micro-batch as many tasks.
            "spark.sql.shuffle.partitions": str(2 * cores),
            # If Spark knows the sizes (not in streams), it cuts finer and joins small partitions.
            "spark.sql.adaptive.coalescePartitions.initialPartitionNum": str(max(64, 2 * cores)),
        }
    return settings


def jvm_environment(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables for the JVM and its Python processes; existing ones are kept.

    Only Spark's submit script reads ``spark.pyspark.python``, so it is passed in variables too.
    """
    python = settings.get("spark.pyspark.python") or environ.get("PYSPARK_PYTHON", sys.executable)
    driver = settings.get("spark.pyspark.driver.python") or environ.get(
        "PYSPARK_DRIVER_PYTHON", sys.executable
    )
    variables = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": driver}
    if is_loopback(settings.get("spark.master", "")):
        # Without this variable, Spark's UI listens on every address.
        variables["SPARK_LOCAL_IP"] = environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    return variables


def heap_bytes(memory: int) -> int:
    """A quarter of the memory, 1 to 4 GiB, because logs are read outside the heap.

    Example:
        >>> heap_bytes(16 << 30) >> 30, heap_bytes(2 << 30) >> 30, heap_bytes(512 << 30) >> 30
        (4, 1, 4)
    """
    return min(max(memory // 4, _GIB), 4 * _GIB)


def memory_bytes() -> int:
    """The memory of this machine, or of the container of this process if that is less."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(limit).read_text().strip()
        except OSError:  # the other version of cgroups, or none
            continue
        if text.isdecimal():
            memory = min(memory, int(text))
    return memory


def scratch_directory() -> Path:
    """The directory for Spark's temporary files, accessible to this user only.

    There is one per user, not one per session, so that killed sessions leave only one.
    ``TMPDIR`` moves it; the setting ``spark.local.dir`` or the variable ``SPARK_LOCAL_DIRS``
    replaces it. Spark deletes the files that it puts there.
    """
    directory = Path(tempfile.gettempdir()) / f"tapewire-spark-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise InvalidOption(
            "the directory for Spark's temporary files must belong to this user",
            path=str(directory),
            hint="remove it, or set TMPDIR to a directory of yours",
        )
    if stat.S_IMODE(found.st_mode) != 0o700:
        directory.chmod(0o700)
    return directory
