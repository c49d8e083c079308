"""A place in a GGUF file: reads one value after another, and never past the end of the file."""

from __future__ import annotations

import mmap
import struct
from pathlib import PurePath
from typing import Any, Protocol

from pagoda.errors import ModelFileError, shown
from pagoda.loading.gguf_types import ARRAY, BOOL, NUMBER_CODES, STRING

MAX_NAME_BYTES = 65_535
_LENGTH = struct.Struct("<Q")


class HeaderSource(Protocol):
    """A file whose beginning can be read: one on disk, or a remote one that arrives as far as it is needed.

    path: what errors call it. size: of the whole file, in bytes. buffer: its bytes from the first on, as many as are here.
    """

    @property
    def path(self) -> PurePath: ...

    @property
    def size(self) -> int: ...

    @property
    def buffer(self) -> mmap.mmap | bytearray: ...

    def available(self, end: int) -> int:
        """How many bytes `buffer` holds, after those before `end`, which is at most `size`, were brought here."""
        ...

    def bytes_at(self, start: int, end: int) -> bytes:
        """A copy of the bytes from `start` up to `end`, which is at most `size`."""
        ...


class GGUFCursor:
    """Reads from `position` on. Every method raises `ModelFileError` where the file ends too soon or is malformed."""

    def __init__(self, file: HeaderSource) -> None:
        self.file = file
        self.position = 0

    @property
    def remaining(self) -> int:
        return self.file.size - self.position

    def u32(self, what: str) -> int:
        return int.from_bytes(self._take(4, what), "little")

    def u64(self, what: str) -> int:
        return int.from_bytes(self._take(8, what), "little")

    def count(self, what: str, least_bytes: int) -> int:
        """A u64 that counts things of at least so many bytes each, held against what is left of the file."""
        count = self.u64(what)
        if count > self.remaining // least_bytes:
            raise ModelFileError(
                f"{self.file.path}: claims {count:,} {what}, more than its remaining {self.remaining:,} bytes can hold"
            )
        return count

    def name(self, what: str) -> str:
        """A string short enough to be a name."""
        length = self.u64(what)
        if length > MAX_NAME_BYTES:
            raise ModelFileError(
                f"{self.file.path}: claims a {what} of {length:,} bytes, at most {MAX_NAME_BYTES:,} are allowed"
            )
        return self._decoded(self._take(length, what), what)

    def value(self, value_type: int, key: str) -> Any:
        """A metadata value: int, float, bool, str, or a list of these."""
        if value_type == STRING:
            return self._strings(1, key)[0]
        if value_type != ARRAY:
            return self._numbers(value_type, 1, key)[0]
        element_type = self.u32(key)
        if element_type == STRING:
            return self._strings(self.count(f"strings for {shown(key)}", 8), key)
        return self._numbers(element_type, self.u64(key), key)

    def skip(self, value_type: int, key: str) -> None:
        """Goes past a metadata value. An array of strings costs a third of what reading it does (0.013 s for SmolLM2's
        98,000); what the strings hold is not looked at."""
        if value_type != ARRAY:
            self.value(value_type, key)
            return
        element_type = self.u32(key)
        if element_type == STRING:
            self._skip_strings(self.count(f"strings for {shown(key)}", 8), key)
        else:
            self._numbers(element_type, self.u64(key), key)

    def _skip_strings(self, count: int, key: str) -> None:
        # The loop of `_strings`, without the strings.
        buffer, position, unpack = self.file.buffer, self.position, _LENGTH.unpack_from
        available = self.file.available(position)
        for _ in range(count):
            start = position + 8
            if start > available:
                available = self._available(start, key)
            position = start + unpack(buffer, position)[0]
            if position > available:
                available = self._available(position, key)
        self.position = position

    def _numbers(self, value_type: int, count: int, key: str) -> list[Any]:
        if value_type not in NUMBER_CODES:
            kind = "an array inside an array" if value_type == ARRAY else f"the unknown value type {value_type}"
            raise ModelFileError(f"{self.file.path}: the metadata key {shown(key)} holds {kind}")
        code = NUMBER_CODES[value_type]
        size = struct.calcsize(f"<{code}")
        if count > self.remaining // size:
            raise ModelFileError(
                f"{self.file.path}: claims {count:,} numbers for {shown(key)}, "
                f"more than its remaining {self.remaining:,} bytes can hold"
            )
        values = struct.unpack(f"<{count}{code}", self._take(count * size, key))
        if value_type != BOOL:
            return list(values)
        if any(value > 1 for value in values):
            raise ModelFileError(f"{self.file.path}: a truth value of {shown(key)} is neither 0 nor 1")
        return [bool(value) for value in values]

    def _strings(self, count: int, key: str) -> list[str]:
        # A vocabulary has hundreds of thousands of strings, each found only after the one before it: hence a loop of
        # local names only (0.04 s for SmolLM2's 98,000).
        buffer, position, unpack = self.file.buffer, self.position, _LENGTH.unpack_from
        available = self.file.available(position)
        result: list[str] = []
        append = result.append
        try:
            for _ in range(count):
                start = position + 8
                if start > available:
                    available = self._available(start, key)
                position = start + unpack(buffer, position)[0]
                if position > available:
                    available = self._available(position, key)
                append(str(buffer[start:position], "utf-8"))
        except UnicodeDecodeError:
            raise ModelFileError(f"{self.file.path}: a string of {shown(key)} is not valid UTF-8") from None
        self.position = position
        return result

    def _available(self, end: int, what: str) -> int:
        if end > self.file.size:
            raise self._too_short(what)
        return self.file.available(end)

    def _take(self, length: int, what: str) -> bytes:
        if length > self.remaining:
            raise self._too_short(what)
        start = self.position
        self.position += length
        return self.file.bytes_at(start, self.position)

    def _decoded(self, raw: bytes, what: str) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise ModelFileError(f"{self.file.path}: a {what} is not valid UTF-8 ({shown(raw)})") from None

    def _too_short(self, what: str) -> ModelFileError:
        return ModelFileError(
            f"{self.file.path}: ends inside {shown(what)}, its {self.file.size:,} bytes are too few (truncated, or corrupt)"
        )
