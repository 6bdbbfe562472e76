"""Where a Spark runs, told from the address of its master."""

from __future__ import annotations

import importlib.util
import ipaddress
import re
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from tapewire.errors import InvalidOption

__all__ = [
    "check_form",
    "connect_endpoint",
    "is_loopback",
    "local_cores",
    "require_connect",
    "require_standalone",
]

_CONNECT_PORT = 15002
_CONNECT_SECONDS = 10.0
_THREADS = r"([1-9]\d*|\*)"
_LOCAL = re.compile(
    rf"local|local\[{_THREADS}\]|local\[{_THREADS},\s*[1-9]\d*\]"
    r"|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
)


def check_form(master: str, environment: Mapping[str, str]) -> None:
    """Raise for an address that is none: Spark would start a Java to say so, by its stack.

    Args:
        master: What was given.
        environment: Of this process; YARN's address is in there.

    Raises:
        InvalidOption: No such master.

    Example:
        >>> check_form("local[2]", {})
        >>> check_form("local[two]", {})
        Traceback (most recent call last):
            ...
        tapewire.errors.InvalidOption: no such master: master='local[two]'; local[N], local[*], \
spark://HOST:7077 or sc://HOST:15002
    """
    if master == "yarn":
        if not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & set(environment):
            raise InvalidOption(
                "nothing says where YARN is: master='yarn'",
                hint="set HADOOP_CONF_DIR or YARN_CONF_DIR to the folder of its settings",
            )
    elif not master.startswith(("spark://", "sc://", "k8s://")) and not _LOCAL.fullmatch(master):
        raise InvalidOption(
            f"no such master: master={master!r:.80}",
            hint="local[N], local[*], spark://HOST:7077 or sc://HOST:15002",
        )


def is_loopback(master: str) -> bool:
    """Whether all workers of a master are on this machine.

    Example:
        >>> is_loopback("local[*]"), is_loopback("spark://127.0.0.1:7077")
        (True, True)
        >>> is_loopback("spark://10.0.0.5:7077"), is_loopback("yarn")
        (False, False)
    """
    if master.startswith("local"):
        return True
    scheme, separator, addresses = master.partition("://")
    if scheme != "spark" or not separator:
        return False  # a resource manager or a Connect server: its workers can be anywhere
    return all(_is_loopback_host(_host(address)) for address in addresses.split(","))


def _host(address: str) -> str:
    """Of ``host``, ``host:port`` or ``[v6]:port``."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0]


def _is_loopback_host(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name: what it resolves to here is not what it is for the workers
        return False


def local_cores(master: str) -> int | None:
    """Cores that a local master uses; None of any other, or where it says ``*``.

    Example:
        >>> local_cores("local[2]"), local_cores("local"), local_cores("local[*]")
        (2, 1, None)
    """
    if master == "local":
        return 1
    if not master.startswith("local[") or not master.endswith("]"):
        return None
    cores = master[len("local[") : -1].partition(",")[0].strip()
    return int(cores) if cores.isdecimal() else None


def require_connect(master: str) -> None:
    """Raise unless a Spark Connect server listens: the client would try again for minutes.

    Raises:
        InvalidOption: The address is none, or nobody answers there.
        ImportError: The packages of the client are missing.
    """
    if importlib.util.find_spec("grpc") is None:
        raise ImportError("Spark Connect needs its client: pip install 'pyspark[connect]'")
    error = _why_nobody_answers(connect_endpoint(master))
    if error is not None:
        raise InvalidOption(
            f"no Spark Connect server answers: master={master} ({error})",
            hint="start one with sbin/start-connect-server.sh of Spark, or correct the address",
        ) from error


def require_standalone(master: str) -> None:
    """Raise unless one of the masters listens: Spark would try for minutes, and say nothing.

    Raises:
        InvalidOption: An address is none, or nobody answers at any.
    """
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise InvalidOption(f"not an address: master={master!r}", hint="spark://HOST:7077")
        error = _why_nobody_answers(address)
        if error is None:
            return
    raise InvalidOption(
        f"no Spark master answers: master={master} ({error})",
        hint="start one with sbin/start-master.sh of Spark, or correct the address",
    ) from error


def _why_nobody_answers(endpoint: str) -> OSError | None:
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OverflowError:  # a port beyond 65535
        return OSError(f"port={port}")
    except OSError as error:
        return error
    return None


def connect_endpoint(master: str) -> str:
    """Host and port of a Connect address; of any other master, itself.

    Example:
        >>> connect_endpoint("sc://10.0.0.5"), connect_endpoint("local[*]")
        ('10.0.0.5:15002', 'local[*]')
    """
    if not master.startswith("sc://"):
        return master
    try:
        parts = urlsplit(master)
        host, port = parts.hostname, parts.port or _CONNECT_PORT
    except ValueError as error:
        raise InvalidOption(f"not an address: master={master!r} ({error})") from error
    if not host:
        raise InvalidOption(f"not an address: master={master!r}", hint="sc://HOST:15002")
    return f"{host}:{port}"
