"""The settings of this host that affect latency, and how to improve them."""

from __future__ import annotations

import os
import platform
import re
import resource
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["Advice", "Host", "advice", "cpu_info", "inspect_host", "read_text", "stolen_ticks"]

# Filesystems in memory, where write-back never delays an append.
IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")


def read_text(path: str, default: str = "unknown") -> str:
    """The text of a file of /proc or /sys; `default` if it cannot be read."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return default


def cpu_info() -> dict[str, str]:
    """/proc/cpuinfo of the last CPU."""
    pairs = (line.partition(":") for line in read_text("/proc/cpuinfo", "").splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


@dataclass(frozen=True)
class Host:
    """The settings of a host; "unknown" and None if the system does not provide them."""

    machine: str
    cpu: str
    cpus: int  # available to this process
    virtual: bool
    kernel: str
    python: str
    tapewire: str
    filesystem: str  # of the directory
    governors: tuple[str, ...]
    clocksource: str
    thp: str
    thp_shmem: str
    isolated: str
    nohz_full: str
    smt: bool | None
    swap_bytes: int
    swappiness: int | None
    memlock_bytes: int | None  # None: unlimited
    overcommit: int | None
    dirty_background_ratio: int | None
    dirty_background_bytes: int | None
    dirty_writeback_centisecs: int | None
    load: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {**asdict(self), "governors": list(self.governors)}


def inspect_host(directory: Path) -> Host:
    """Collect the settings of this host, and the filesystem of a directory."""
    from importlib.metadata import version

    info = cpu_info()
    memlock = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    unlimited = memlock == resource.RLIM_INFINITY or _may_lock_memory()
    cpus = "/sys/devices/system/cpu"
    governors = {
        read_text(str(path)) for path in Path(cpus).glob("cpu[0-9]*/cpufreq/scaling_governor")
    }
    return Host(
        machine=platform.machine(),
        cpu=info.get("model name", platform.processor() or "unknown"),
        cpus=len(os.sched_getaffinity(0)),
        virtual=_is_virtual(info),
        kernel=platform.release(),
        python=platform.python_version(),
        tapewire=version("tapewire"),
        filesystem=filesystem_of(directory, read_text("/proc/self/mountinfo", "")),
        governors=tuple(sorted(governors)),
        clocksource=read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        thp=_chosen(read_text("/sys/kernel/mm/transparent_hugepage/enabled")),
        thp_shmem=_chosen(read_text("/sys/kernel/mm/transparent_hugepage/shmem_enabled")),
        isolated=read_text(f"{cpus}/isolated", ""),
        nohz_full=read_text(f"{cpus}/nohz_full", "").replace("(null)", ""),
        smt={"0": False, "1": True}.get(read_text(f"{cpus}/smt/active")),
        swap_bytes=_swap_bytes(read_text("/proc/swaps", "")),
        swappiness=_number("/proc/sys/vm/swappiness"),
        memlock_bytes=None if unlimited else memlock,
        overcommit=_number("/proc/sys/vm/overcommit_memory"),
        dirty_background_ratio=_number("/proc/sys/vm/dirty_background_ratio"),
        dirty_background_bytes=_number("/proc/sys/vm/dirty_background_bytes"),
        dirty_writeback_centisecs=_number("/proc/sys/vm/dirty_writeback_centisecs"),
        load=round(os.getloadavg()[0], 2),
    )


def stolen_ticks() -> int:
    """CPU time that the hypervisor took away so far (steal), in clock ticks over all CPUs."""
    fields = read_text("/proc/stat", "").partition("\n")[0].split()
    return int(fields[8]) if len(fields) > 8 else 0


def filesystem_of(directory: Path, mountinfo: str) -> str:
    r"""The type of a directory's filesystem, from the text of /proc/self/mountinfo.

    Example:
        >>> table = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n25 21 0:22 / /dev/shm rw - tmpfs shm rw"
        >>> filesystem_of(Path("/dev/shm/bus"), table), filesystem_of(Path("/srv"), table)
        ('tmpfs', 'ext4')
    """
    where = os.path.realpath(directory)
    best, kind = "", "unknown"
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        words, source_words = mount.split(), source.split()
        if len(words) < 5 or not source_words:
            continue
        point = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), words[4])  # a space
        inside = point in ("/", where) or where.startswith(f"{point}/")
        if inside and len(point) >= len(best):  # a later mount covers an earlier one
            best, kind = point, source_words[0]
    return kind


def _is_virtual(info: dict[str, str]) -> bool:
    if "hypervisor" in info.get("flags", "").split():
        return True
    # ARM has no such flag; the firmware names the hypervisor.
    product = read_text("/sys/class/dmi/id/product_name", "") + read_text(
        "/sys/class/dmi/id/sys_vendor", ""
    )
    return any(
        name in product for name in ("KVM", "QEMU", "VMware", "VirtualBox", "Virtual Machine")
    )


def _may_lock_memory() -> bool:
    """Whether this process has CAP_IPC_LOCK, to which the limit does not apply."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", read_text("/proc/self/status", ""), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> 14 & 1)


def _chosen(text: str) -> str:
    """The word in brackets: ``always [madvise] never``."""
    return text.partition("[")[2].partition("]")[0] or "unknown"


def _swap_bytes(text: str) -> int:
    rows = (line.split() for line in text.splitlines()[1:])
    return sum(int(row[2]) * 1024 for row in rows if len(row) > 2 and row[2].isdigit())


def _number(path: str) -> int | None:
    text = read_text(path)
    return int(text) if text.isdigit() else None


@dataclass(frozen=True)
class Advice:
    """A setting and its value; `do` is empty if the value is suitable."""

    what: str
    found: str
    why: str = ""
    do: str = ""
    disturbs: bool = False  # it made this measurement worse than the host can do

    @property
    def wanting(self) -> bool:
        """Whether the setting should be changed."""
        return bool(self.do)


def advice(host: Host) -> list[Advice]:
    """Every setting that is checked, in order, with what to do about it."""
    return [rule(host) for rule in _RULES]


def _cores(host: Host) -> Advice:
    found = f"{host.cpus} CPUs" if host.cpus > 1 else "1 CPU"
    if host.cpus < 2:
        return Advice(
            "cores", found, "two processes share the core", "give writer and reader a core each"
        )
    if host.cpus < 4:
        return Advice(
            "cores",
            found,
            "a writer and a reader that spin leave no core for other work",
            "use 4 or more, or readers that park (tw.SpinThenPark, the default)",
        )
    return Advice("cores", found)


def _hypervisor(host: Host) -> Advice:
    if host.virtual:
        return Advice(
            "machine",
            "virtual",
            "the hypervisor takes cores away for milliseconds, and wakes late",
            "run on bare metal, or with dedicated cores, if tail latency matters",
        )
    return Advice("machine", "bare metal, as far as known")


def _load(host: Host) -> Advice:
    found = f"{host.load:g} at the start"
    if host.load > 0.5 * host.cpus:
        return Advice(
            "load",
            found,
            "other processes were running, so the results are worse than the host",
            "measure again when the host is idle",
            disturbs=True,
        )
    return Advice("load", found)


def _governor(host: Host) -> Advice:
    found = ", ".join(host.governors) or "none (fixed, or the hypervisor's)"
    slow = [name for name in host.governors if name != "performance"]
    if slow:
        return Advice(
            "governor",
            found,
            "cores slow down between messages and take long to speed up",
            "cpupower frequency-set -g performance",
        )
    return Advice("governor", found)


def _clock(host: Host) -> Advice:
    if host.clocksource in ("tsc", "arch_sys_counter", "kvm-clock"):
        return Advice("clock", host.clocksource)
    return Advice(
        "clock",
        host.clocksource,
        "each append reads the clock, and this one takes a system call or more",
        "boot with clocksource=tsc if the TSC of the processor is stable",
    )


def _isolation(host: Host) -> Advice:
    found = f"isolated {host.isolated or 'none'}, nohz_full {host.nohz_full or 'none'}"
    if not host.isolated or not host.nohz_full:
        return Advice(
            "isolation",
            found,
            "the scheduler and its tick interrupt threads that spin",
            "boot with isolcpus= and nohz_full= for the cores of the hot loops, and pin them",
        )
    return Advice("isolation", found)


def _smt(host: Host) -> Advice:
    if host.smt:
        return Advice(
            "SMT",
            "on",
            "two threads share a core and slow each other down",
            "leave the sibling of a hot core idle, or turn SMT off",
        )
    return Advice("SMT", "unknown" if host.smt is None else "off")


def _thp(host: Host) -> Advice:
    found = f"{host.thp}, tmpfs {host.thp_shmem}"
    if host.thp == "always":
        return Advice(
            "huge pages",
            found,
            "the kernel stalls processes while it compacts memory",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    return Advice("huge pages", found)


def _directory(host: Host) -> Advice:
    if host.filesystem in IN_MEMORY:
        return Advice("directory", f"{host.filesystem}, in memory, lost at a reboot")
    return Advice(
        "directory",
        f"{host.filesystem}, on a disk",
        "an append to a page that is being written back waits for it",
        "put hot queues on tmpfs, and have a reader copy them to the disk",
    )


def _dirty(host: Host) -> Advice:
    found = (
        f"background {host.dirty_background_bytes} bytes"
        if host.dirty_background_bytes
        else f"background {host.dirty_background_ratio} %"
    )
    found += f", every {(host.dirty_writeback_centisecs or 0) / 100:g} s"
    if host.filesystem in IN_MEMORY or host.dirty_background_bytes:
        return Advice("write-back", found)
    return Advice(
        "write-back",
        found,
        "dirty pages accumulate to a share of memory and are then written at once",
        "sysctl vm.dirty_background_bytes=67108864 spreads the writes",
    )


def _swap(host: Host) -> Advice:
    if host.swap_bytes and host.swappiness:
        return Advice(
            "swap",
            f"{host.swap_bytes / 1e9:.1f} GB, swappiness {host.swappiness}",
            "a queue in memory, or an idle process, may be swapped out",
            "swapoff -a, or sysctl vm.swappiness=0, or memlock=True",
        )
    return Advice("swap", "off" if not host.swap_bytes else "on, swappiness 0")


def _memlock(host: Host) -> Advice:
    if host.memlock_bytes is None:
        return Advice("memlock", "unlimited")
    return Advice(
        "memlock",
        f"{host.memlock_bytes / (1 << 20):,.0f} MiB",
        "memlock=True, and .live(), can lock no more than this",
        "ulimit -l unlimited, or LimitMEMLOCK=infinity in a systemd unit",
    )


def _overcommit(host: Host) -> Advice:
    found = "unknown" if host.overcommit is None else str(host.overcommit)
    if host.overcommit == 2:
        return Advice(
            "overcommit",
            found,
            "mappings count as used memory, so large queues may not be mapped",
            "sysctl vm.overcommit_memory=0",
        )
    return Advice("overcommit", found)


_RULES: tuple[Callable[[Host], Advice], ...] = (
    _cores,
    _hypervisor,
    _load,
    _governor,
    _clock,
    _isolation,
    _smt,
    _thp,
    _directory,
    _dirty,
    _swap,
    _memlock,
    _overcommit,
)
