"""Addresses of Spark masters: which are valid, local, or reachable."""

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
    """Refuse an invalid address, for which Spark would start Java and print a stack trace.

    Args:
        master: The address.
        environment: Environment variables, which contain the address of YARN.

    Raises:
        InvalidOption: The address is invalid.

    Example:
        >>> check_form("local[2]", {})
        >>> check_form("local[two]", {})
        Traceback (most recent call last):
            ...
        tapewire.errors.InvalidOption: no such master: master='local[two]'; use local[N], \
local[*], spark://HOST:7077 or sc://HOST:15002
    """
    if master == "yarn":
        if not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & set(environment):
            raise InvalidOption(
                "the address of YARN is not configured: master='yarn'",
                hint="set HADOOP_CONF_DIR or YARN_CONF_DIR to the directory of its settings",
            )
    elif not master.startswith(("spark://", "sc://", "k8s://")) and not _LOCAL.fullmatch(master):
        raise InvalidOption(
            f"no such master: master={master!r:.80}",
            hint="use local[N], local[*], spark://HOST:7077 or sc://HOST:15002",
        )


def is_loopback(master: str) -> bool:
    """Whether all workers of a master run on this machine.

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
        return False  # a resource manager or a Connect server, whose workers can be anywhere
    return all(_is_loopback_host(_host(address)) for address in addresses.split(","))


def _host(address: str) -> str:
    """The host in ``host``, ``host:port`` or ``[v6]:port``."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0]


def _is_loopback_host(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a host name, which may resolve to another address on the workers
        return False


def local_cores(master: str) -> int | None:
    """Cores that a local master uses; None for ``*`` and for other masters.

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
    """Raise unless a Spark Connect server listens, because the client would retry for minutes.

    Raises:
        InvalidOption: The address is invalid, or no server answers there.
        ImportError: The packages of the client are missing.
    """
    if importlib.util.find_spec("grpc") is None:
        raise ImportError("Spark Connect needs its client: pip install 'pyspark[connect]'")
    error = _connection_error(connect_endpoint(master))
    if error is not None:
        raise InvalidOption(
            f"no Spark Connect server answers: master={master} ({error})",
            hint="start one with Spark's sbin/start-connect-server.sh, or correct the address",
        ) from error


def require_standalone(master: str) -> None:
    """Raise unless one of the masters listens, because Spark would retry silently for minutes.

    Raises:
        InvalidOption: An address is invalid, or no master answers.
    """
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise InvalidOption(f"invalid address: master={master!r}", hint="use spark://HOST:7077")
        error = _connection_error(address)
        if error is None:
            return
    raise InvalidOption(
        f"no Spark master answers: master={master} ({error})",
        hint="start one with Spark's sbin/start-master.sh, or correct the address",
    ) from error


def _connection_error(endpoint: str) -> OSError | None:
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OverflowError:  # a port beyond 65535
        return OSError(f"port={port}")
    except OSError as error:
        return error
    return None


def connect_endpoint(master: str) -> str:
    """Host and port of a Connect address; any other master unchanged.

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
        raise InvalidOption(f"invalid address: master={master!r} ({error})") from error
    if not host:
        raise InvalidOption(f"invalid address: master={master!r}", hint="use sc://HOST:15002")
    return f"{host}:{port}"
