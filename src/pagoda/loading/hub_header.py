"""A GGUF model's configuration before its files are downloaded: its header alone, read from the hub in ranges of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from pagoda.loading.gguf import merged_tensors
from pagoda.loading.gguf_config import gguf_config
from pagoda.loading.gguf_header import GGUFHeader

# Each range doubles what is here. A vocabulary of 250,000 tokens with its merges takes about 12 MiB.
FIRST_RANGE_BYTES = 256 * 1024
MAX_HEADER_BYTES = 64 * 1024 * 1024


class HeaderUnavailableError(Exception):
    """The header cannot be had in this way, which says nothing against the model."""


def remote_gguf_config(repository: str, commit: str | None, sizes: Mapping[str, int]) -> dict[str, Any]:
    """What `GGUFCheckpoint.config` would be, but without `rope_divisors`, which are a tensor's values.

    Takes and raises what `remote_gguf_headers` does.
    """
    parts = remote_gguf_headers(repository, commit, sizes)
    return gguf_config(parts[0].metadata, merged_tensors(parts), str(parts[0].path))


def remote_gguf_headers(repository: str, commit: str | None, sizes: Mapping[str, int]) -> list[GGUFHeader]:
    """The headers of a model's file or of all its parts.

    sizes: name → bytes of the model's file or, in order, of all its parts.
    Nothing after the range that the header ends in is asked for, and at most `MAX_HEADER_BYTES` in all.
    Raises `ModelFileError` or `UnsupportedModelError` where the headers are wrong, `HeaderUnavailableError` where they are
    longer than that or the hub sends something else, and the errors of `huggingface_hub` and its HTTP library.
    """
    parts: list[GGUFHeader] = []
    budget = MAX_HEADER_BYTES
    for name, size in sizes.items():
        if not size:
            raise HeaderUnavailableError(f"{repository}: the hub does not say how many bytes {name} has")
        file = RemoteFile(repository, name, commit, size, budget)
        parts.append(GGUFHeader(file))
        budget -= len(file.buffer)
    return parts


class RemoteFile:
    """The beginning of a file on the hub, as far as it was needed. See `gguf_cursor.HeaderSource` for its members."""

    def __init__(self, repository: str, name: str, commit: str | None, size: int, limit: int) -> None:
        """limit: how many bytes may be asked for."""
        from huggingface_hub import hf_hub_url

        self.path = PurePosixPath(repository, name)
        self.size = size
        self.buffer = bytearray()
        self._url = hf_hub_url(repository, name, revision=commit)
        self._limit = min(limit, size)

    def available(self, end: int) -> int:
        """How many bytes `buffer` holds, after those before `end` were fetched."""
        present = len(self.buffer)
        if end > present:
            if end > self._limit:
                raise HeaderUnavailableError(f"{self.path}: the header is longer than {self._limit:,} bytes")
            self._fetch(min(max(end, 2 * present, FIRST_RANGE_BYTES), self._limit))
            if end > len(self.buffer):
                raise HeaderUnavailableError(f"{self.path}: the hub sent fewer bytes than were asked for")
        return len(self.buffer)

    def bytes_at(self, start: int, end: int) -> bytes:
        self.available(end)
        return bytes(self.buffer[start:end])

    def _fetch(self, end: int) -> None:
        from huggingface_hub import constants
        from huggingface_hub.utils import (  # type: ignore[attr-defined]
            build_hf_headers,
            hf_raise_for_status,
            http_stream_backoff,
        )

        start = len(self.buffer)
        headers = {**build_hf_headers(), "Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        # Errors raised while the body is read would come out of the retrying generator at the wrong place: no exception is
        # retried, just as in the library's own downloads.
        with http_stream_backoff(
            "GET",
            self._url,
            headers=headers,
            timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
            retry_on_exceptions=(),
            retry_on_status_codes=(408, 429),
        ) as response:
            hf_raise_for_status(response)
            self._append(response.iter_bytes(), self._bytes_to_skip(response, start), end)

    def _append(self, chunks: Iterable[bytes], skip: int, end: int) -> None:
        for chunk in chunks:
            self.buffer += chunk[skip : skip + end - len(self.buffer)]
            skip = max(0, skip - len(chunk))
            if len(self.buffer) == end:
                return  # whatever else comes is not read

    def _bytes_to_skip(self, response: Any, start: int) -> int:
        """How many bytes of the body are here already: a server without ranges sends the file from its first byte."""
        if response.status_code == 200:
            return start
        if response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            return 0
        raise HeaderUnavailableError(f"{self.path}: the hub sent another part of the file than was asked for")
