"""A hub on this machine: the few endpoints that `huggingface_hub` calls for listing and downloading a model."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import close_session

SHA = "0123456789abcdef0123456789abcdef01234567"
_BOUNDED = re.compile(r"bytes=(\d+)-(\d+)")


@contextmanager
def serving(
    repositories: Mapping[str, Mapping[str, bytes]], cache: Path, patch: pytest.MonkeyPatch
) -> Iterator[FakeHub]:
    """A hub that `huggingface_hub` asks instead of the real one, with a cache of its own."""
    server = FakeHub(repositories)
    patch.setenv("NO_PROXY", "127.0.0.1")
    patch.setattr(constants, "ENDPOINT", server.url)
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}")
    patch.setattr(constants, "HF_HUB_CACHE", str(cache))
    patch.setattr(constants, "HF_HUB_OFFLINE", False)
    close_session()
    yield server
    close_session()
    server.close()


def go_offline(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(constants, "HF_HUB_OFFLINE", True)
    close_session()


class FakeHub:
    """repositories: id → file name → content.

    asked: every request as "METHOD path", with its Range where it has one.
    broken: names of files whose first download breaks off half-way.
    status: answers everything with this HTTP status, where set.
    range_status: what a request for a range is answered with: 206; 200, the whole file; or an error.
    shift, shorten: a bounded range is answered with one that begins so many bytes later, or ends so many earlier.
    torn: the answers to bounded ranges break off half-way.
    redirected: content is served from another address of this server, to which the first one points.
    """

    def __init__(self, repositories: Mapping[str, Mapping[str, bytes]]) -> None:
        self.repositories = repositories
        self.gated: set[str] = set()
        self.broken: set[str] = set()
        self.status: int | None = None
        self.range_status = 206
        self.shift = self.shorten = 0
        self.torn = self.redirected = False
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def downloaded(self) -> list[str]:
        """The files whose content was asked for up to its end, in alphabetical order."""
        return sorted(name for name, wanted in self._contents() if not _BOUNDED.fullmatch(wanted))

    @property
    def looked_into(self) -> list[tuple[str, int, int]]:
        """The pieces that were asked for, as (file, first byte, byte after the last), in order."""
        pieces = [(name, _BOUNDED.fullmatch(wanted)) for name, wanted in self._contents()]
        return [(name, int(found[1]), int(found[2]) + 1) for name, found in pieces if found]

    def _contents(self) -> list[tuple[str, str]]:
        """(file, range) of every request for a file's content"""
        words = [line.split() for line in self.asked if line.startswith("GET") and "/resolve/" in line]
        return [(path.split(f"/resolve/{SHA}/")[1], " ".join(wanted)) for _, path, *wanted in words]

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, body)"""
        if self.redirected and "/resolve/" in path and not path.startswith("/elsewhere/"):
            return 302, {"Location": f"{self.url}/elsewhere{path}"}, b""
        parts = unquote(path.removeprefix("/elsewhere")).strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        name, rest = ("/".join(parts[2:4]), parts[4:]) if is_api else ("/".join(parts[:2]), parts[2:])
        fault = self._fault(name, rest)
        if fault is not None:
            return fault[0], {"X-Error-Code": fault[1], "X-Repo-Commit": SHA}, b""
        files = self.repositories[name]
        if is_api:
            listing: Any = {"id": name, "modelId": name, "sha": SHA, "siblings": _siblings(files)}
            if rest[:1] == ["tree"]:
                listing = [{"type": "file", "path": f, "size": len(c), "oid": _etag(c)} for f, c in files.items()]
            return 200, {"Content-Type": "application/json"}, json.dumps(listing).encode()
        content = files["/".join(rest[2:])]
        return 200, {"ETag": f'"{_etag(content)}"', "X-Repo-Commit": SHA}, content

    def _fault(self, name: str, rest: list[str]) -> tuple[int, str] | None:
        if self.status is not None:
            return self.status, ""
        if name not in self.repositories:
            return 404, "RepoNotFound"
        if name in self.gated:
            return 403, "GatedRepo"
        if rest[:1] == ["revision"] and rest[1] not in ("main", SHA):
            return 404, "RevisionNotFound"
        if rest[:1] == ["resolve"] and "/".join(rest[2:]) not in self.repositories[name]:
            return 404, "EntryNotFound"
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.respond(with_body=True)

            def do_HEAD(self) -> None:
                self.respond(with_body=False)

            def respond(self, with_body: bool) -> None:
                wanted = self.headers.get("Range", "")
                hub.asked.append(f"{self.command} {urlsplit(self.path).path} {wanted}".strip())
                status, headers, body = hub.answer(urlsplit(self.path).path)
                file = urlsplit(self.path).path.rpartition("/")[2]
                if wanted.startswith("bytes=") and status == 200 and hub.range_status == 206:
                    first, last = wanted[6:].split("-")
                    start, end, total = int(first) + hub.shift, int(last or len(body)) + 1 - hub.shorten, len(body)
                    status, body = 206, body[start:end]
                    headers["Content-Range"] = f"bytes {start}-{start + len(body) - 1}/{total}"
                elif wanted.startswith("bytes=") and status == 200:
                    status, body = hub.range_status, body if hub.range_status == 200 else b""
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body)), "Connection": "close"}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.close_connection = True
                is_piece = _BOUNDED.fullmatch(wanted) is not None
                if with_body and (hub.torn if is_piece else file in hub.broken):
                    hub.broken.discard(file)
                    body = body[: len(body) // 2]
                with suppress(ConnectionError):  # the client may have seen enough
                    self.wfile.write(body if with_body else b"")

            def log_message(self, *_: object) -> None:
                """Quiet."""

        return Handler


def _etag(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def _siblings(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    return [{"rfilename": name, "size": len(content), "blobId": _etag(content)} for name, content in files.items()]
