"""The names under which a server may be reached: a web page can point a name of its own at any machine (DNS rebinding)."""

from __future__ import annotations

import ipaddress
import re

from pagoda.config import ServerConfig
from pagoda.errors import InvalidValueError

HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)


class OwnNames:
    """The loopback names, those of `allowed_hosts`, and, with `allow_unauthenticated`, the address of the connection.

    Raises `InvalidValueError` for an entry of `allowed_hosts` that is no name.
    """

    def __init__(self, config: ServerConfig) -> None:
        self._allowed = host_names(config.allowed_hosts)
        self._own_address = config.allow_unauthenticated

    def include(self, host: str, address: str) -> bool:
        """host: as a Host header has it, with any port or none. address: this machine's end of the connection."""
        parts = HOST.fullmatch(host)
        if parts is None:
            return False
        name = _normal(parts[1])
        if name in self._allowed or is_loopback(name):
            return True
        # Addresses cannot be rebound, names can.
        return self._own_address and name == address.removeprefix("::ffff:")


def host_names(allowed_hosts: str) -> frozenset[str]:
    """The names in a comma-separated list, as they are compared. Raises `InvalidValueError` for what is none."""
    names = [_bracketed(name.strip()) for name in allowed_hosts.split(",") if name.strip()]
    for name in names:
        parts = HOST.fullmatch(name)
        if parts is None or parts[0] != parts[1]:
            raise InvalidValueError("allowed_hosts", name, "host names or addresses, without ports or wildcards")
    return frozenset(map(_normal, names))


def is_loopback(name: str) -> bool:
    """Whether a host without brackets is this machine, whatever a name server says: localhost, 127.x.x.x or ::1."""
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _normal(host: str) -> str:
    """Lower case, without the root's dot; IPv6 without brackets, in its shortest spelling."""
    name = host.lower().removesuffix(".")
    if not name.startswith("["):
        return name
    try:
        return str(ipaddress.IPv6Address(name[1:-1]))
    except ValueError:
        return name


def _bracketed(name: str) -> str:
    return f"[{name}]" if name.count(":") > 1 and not name.startswith("[") else name
