"""What an object file defines for others: its ELF symbol table, without binutils, which need not be there."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

SYMTAB, LOCAL, UNDEFINED = 2, 0, 0
FUNCTION, INDIRECT = 2, 10


def shared_functions(path: Path) -> Iterator[str]:
    """Names of the functions that a 64-bit little-endian object defines and that are not its own: global and weak ones."""
    data = path.read_bytes()
    assert data[:6] == b"\x7fELF\x02\x01", path
    at, entry_bytes, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    # Elf64_Shdr: name, type, flags, address, offset, size, link, info, alignment, entry size.
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * entry_bytes) for i in range(count)]
    for section in sections:
        if section[1] == SYMTAB:
            names = sections[section[6]][4]
            for symbol in range(section[4], section[4] + section[5], section[9]):
                name, info, _, where = struct.unpack_from("<IBBH", data, symbol)
                if info >> 4 != LOCAL and where != UNDEFINED and info & 15 in (FUNCTION, INDIRECT):
                    start = names + name
                    yield data[start : data.index(b"\0", start)].decode()
