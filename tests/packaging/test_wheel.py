"""The wheel: what is in it, for which machines it says it is, and how much it takes."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import sysconfig
import zipfile
from collections.abc import Iterator

import pytest

from pagoda.version import __version__
from tests.packaging.bare_machine import ROOT
from tests.packaging.conftest import Built

pytestmark = pytest.mark.slow
MOST_BYTES = 3_000_000


@pytest.fixture
def wheel(built: Built) -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(built.wheel) as archive:
        yield archive


def test_named_after_this_python_and_kind_of_machine(built: Built) -> None:
    name, version, python, abi, platform = built.wheel.stem.split("-")
    assert (name, version) == ("pagoda_llm", __version__)
    assert python == abi == f"cp{sysconfig.get_config_var('py_version_nodot')}"
    assert platform == sysconfig.get_platform().replace("-", "_").replace(".", "_")


def test_has_the_package_its_module_and_its_types_only(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if not name.endswith("/")}
    package = {name for name in names if name.startswith("pagoda/")}
    native = f"pagoda/_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    sources = (
        path
        for path in (ROOT / "src" / "pagoda").rglob("*")
        if path.suffix in {".py", ".pyi", ".typed", ".j2", ".css", ".json"}
    )
    assert package == {path.relative_to(ROOT / "src").as_posix() for path in sources} | {native}
    assert {"pagoda/_native.pyi", "pagoda/py.typed"} <= package
    assert {name.partition("/")[0] for name in names - package} == {f"pagoda_llm-{__version__}.dist-info"}
    assert {"LICENSE", "NOTICE", "RECORD"} <= {name.rpartition("/")[2] for name in names}


def test_record_is_right(wheel: zipfile.ZipFile) -> None:
    record = f"pagoda_llm-{__version__}.dist-info/RECORD"
    rows = list(csv.reader(io.StringIO(wheel.read(record).decode())))
    assert sorted(row[0] for row in rows) == sorted(name for name in wheel.namelist() if not name.endswith("/"))
    for name, digest, size in rows:
        if name != record:
            data = wheel.read(name)
            sha256 = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert (digest, int(size)) == (f"sha256={sha256}", len(data))


def test_is_small(wheel: zipfile.ZipFile) -> None:
    assert sum(entry.file_size for entry in wheel.infolist()) <= MOST_BYTES
