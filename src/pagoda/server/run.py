"""Listening, serving and ending: uvicorn, driven so that an idle server does nothing and an ending one finishes its work."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from pagoda.config import ServerConfig
from pagoda.errors import PagodaError
from pagoda.server.guard import Guard, guarded
from pagoda.server.hosts import is_loopback
from pagoda.server.protocol import Protocol
from pagoda.server.service import Service

# Added to the niceness of the threads that speak HTTP and make text, so that the engine's come first.
NICENESS = 10
# Longer than the 60 seconds after which proxies close a connection: who closes first must be the one that knows.
KEEP_ALIVE_SECONDS = 65
# For the last bytes of finished answers to leave.
FLUSH_SECONDS = 10
MAX_HEADER_BYTES = 32 << 10
BACKLOG = 1024
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def bind(config: ServerConfig) -> socket.socket:
    """A socket bound to the configured address, not listening yet: cheap, so that it can be done before a model is loaded.

    Raises `PagodaError`: for an address that others can reach without `allow_unauthenticated`, one that is not this
    machine's, a port that is taken or needs rights.
    """
    family, address = _resolve(config.host, config.port)
    if not (config.allow_unauthenticated or is_loopback(address[0])):
        raise PagodaError(
            f"--host: {config.host} can be reached by others, and there are no keys yet: anybody could use the model; "
            "give --allow-unauthenticated if that is meant, or leave the host at 127.0.0.1"
        )
    # The protocol is named for asyncio, which otherwise leaves small writes to wait for each other (Nagle's algorithm).
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # A port that a server before has just left may be used again at once.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise _refusal(config, error) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """Where the server can be reached from this machine: `http://127.0.0.1:8000`, without a slash at the end."""
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.is_unspecified:
        address = ipaddress.ip_address("127.0.0.1" if address.version == 4 else "::1")
    return f"http://{f'[{address}]' if address.version == 6 else address}:{port}"


def run(app: ASGIApp, service: Service, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT, then finish what runs and return. A second signal ends the process at once.

    on_ready: called when requests are answered. Call this in the main thread; it takes over the two signals.
    Raises `PagodaError` where the address was taken since `bind`.
    """
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise _refusal(service.config, error) from None
    _lower_priorities(service)
    _Server(guarded(app, service), service, on_ready).run([listener])


class _Server(uvicorn.Server):
    """uvicorn without its clock, and with an end that waits for what runs."""

    def __init__(self, guard: Guard, service: Service, on_ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                guard,
                http=Protocol,
                ws="none",
                loop="asyncio",
                log_config=None,
                log_level="error",
                access_log=False,
                # Headers that change need a clock, others tell an attacker what to try.
                date_header=False,
                server_header=False,
                # No proxy in front is known, so none is believed.
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=FLUSH_SECONDS,
                h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            )
        )
        self._guard, self._service, self._on_ready = guard, service, on_ready
        self._stop = asyncio.Event()

    async def main_loop(self) -> None:
        """Sleeps until a signal: uvicorn's own wakes ten times a second to look whether one came."""
        self._on_ready()
        await self._stop.wait()
        # Health and readiness are still answered meanwhile, everything new is sent elsewhere.
        self._service.draining = True
        await self._guard.drained()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's own raises the signals again at the end, which would make of every end a violent one."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self._end)
        try:
            yield
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def _end(self) -> None:
        self._stop.set()
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PagodaError(f"--host: {host!r:.200} is no address of this machine: {reason}") from None
    # Clients that are given a name try IPv4 too, and many try nothing else.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, address  # type: ignore[return-value]


def _refusal(config: ServerConfig, error: OSError) -> PagodaError:
    if error.errno == errno.EADDRINUSE:
        return PagodaError(
            f"--port: {config.port} on {config.host} is taken by another program; give another port, or 0 for any free one"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return PagodaError(
            f"--port: {config.port} needs rights that this user does not have; ports from 1024 on do not"
        )
    return PagodaError(f"--host: cannot listen on {config.host}, port {config.port}: {error.strerror}")


def _lower_priorities(service: Service) -> None:
    # Only Linux has a priority for each thread; elsewhere this would slow the engine down as well.
    if sys.platform != "linux":
        return
    for thread in (threading.get_native_id(), service.llm.output_thread_id):
        if thread is not None:
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)
