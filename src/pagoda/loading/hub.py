"""A repository on the hub, through `huggingface_hub`: its cache, its offline mode, its progress bars, its resuming.

(A dropped connection is taken up where it broke off; a later run keeps the files that are complete.)

Only what is needed is fetched: configuration, tokenizer and templates, and safetensors or one GGUF model. Code (`*.py`) and
pickles (`*.bin`) never are. Weights come last, after the caller has accepted the configuration.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagoda.errors import ModelFileError, shown
from pagoda.loading.gguf_choice import choose_gguf, is_gguf
from pagoda.loading.hub_header import HeaderUnavailableError, remote_gguf_config
from pagoda.loading.huggingface import is_weight_file, read_config

_HUB_ID = re.compile(
    r"(?P<repository>[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?)(?::(?P<choice>[\w][\w./-]*))?", re.ASCII
)
# Given a model's configuration (`Checkpoint.config`), raises a `PagodaError` to refuse the model.
Accept = Callable[[Mapping[str, Any]], None]
MAX_ID_LENGTH = 96  # the hub's own limit
_SMALL_SUFFIXES = (".json", ".jinja")
_SMALL_NAMES = ("merges.txt",)


@dataclass(frozen=True, slots=True)
class HubId:
    """`org/name` (or a legacy `name`), and which of its GGUF models is meant, if that was said."""

    repository: str
    choice: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """What a repository has at one commit. sizes: file name → bytes."""

    commit: str | None
    sizes: Mapping[str, int]


class UnreachableError(Exception):
    """The hub cannot be asked; its cache may still have the files. The text completes "… and the cache …"."""


def parse_hub_id(text: str) -> HubId | None:
    """`org/name` or `org/name:CHOICE`; None for anything else."""
    match = _HUB_ID.fullmatch(text)
    if match is None or ".." in text or "--" in match["repository"] or len(match["repository"]) > MAX_ID_LENGTH:
        return None
    return HubId(match["repository"], match["choice"])


# A directory's name, mistyped, can look like a hub id.
NOT_HERE = "there is no file or directory of that name"


def named(wanted: HubId, revision: str | None) -> str:
    """How errors call it."""
    return f"hub model {wanted.repository}" + (f" at revision {revision}" if revision else "")


def fetch(wanted: HubId, revision: str | None, accept: Accept) -> Path:
    """The path on disk of the model: a directory with safetensors, or a GGUF file (the first part of a split one).

    accept: called with the configuration before weights are downloaded, and not called where there is nothing to download.
    A GGUF's configuration is read from its header on the hub; where that cannot be had (`hub_header` says when, and a
    network that fails is one more case), the download begins without the call.

    Raises what `accept` raises, `UnsupportedModelError` for a GGUF with tensors in an unknown format, and `ModelFileError`:
    unknown, gated or unreachable repository; nothing in the cache while offline; no such GGUF; files that are wrong.
    """
    where = named(wanted, revision)
    try:
        listing = remote_files(wanted.repository, revision, where)
    except UnreachableError as reason:
        return _cached(wanted, revision, where, str(reason))
    names = _needed(wanted, listing.sizes, where)
    try:
        if not _are_cached(wanted.repository, listing.commit, names):
            config = _config_before_weights(wanted.repository, revision, listing, names, where)
            if config is not None:
                accept(config)
        folder = download(wanted.repository, revision, names, where)
    except UnreachableError as reason:
        raise ModelFileError(
            f"{where}: the download failed, since {reason}; run it again, files already complete are kept"
        ) from None
    return folder / names[0] if is_gguf(names[0]) else folder


def _are_cached(repository: str, commit: str | None, names: list[str]) -> bool:
    from huggingface_hub import try_to_load_from_cache

    return all(isinstance(try_to_load_from_cache(repository, name, revision=commit), str) for name in names)


def _config_before_weights(
    repository: str, revision: str | None, listing: Listing, names: list[str], where: str
) -> Mapping[str, Any] | None:
    """The configuration of a model whose weights are still on the hub; None for a GGUF whose header cannot be had."""
    if not is_gguf(names[0]):
        if "config.json" not in names:
            raise ModelFileError(f"{where}: has no config.json")
        return read_config(download(repository, revision, [n for n in names if not is_weight_file(n)], where))
    try:
        with failures_explained(where, revision):
            return remote_gguf_config(repository, listing.commit, {name: listing.sizes[name] for name in names})
    except (HeaderUnavailableError, UnreachableError):
        return None


def _cached(wanted: HubId, revision: str | None, where: str, reason: str) -> Path:
    folder, sizes = cached_files(wanted.repository, revision, where, reason)
    try:
        names = _needed(wanted, sizes, where)
    except ModelFileError as error:
        raise ModelFileError(f"{error} (only the cache was searched, since {reason})") from None
    return folder / names[0] if is_gguf(names[0]) else folder


def cached_files(repository: str, revision: str | None, where: str, reason: str) -> tuple[Path, Mapping[str, int]]:
    """The repository's folder in the cache and what is there, name → bytes. Raises `ModelFileError`, with the reason why
    the hub is not asked, where there is none."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        # No pattern, so that the folder is found whatever part of the repository it has; the names are checked later.
        found = snapshot_download(repository, revision=revision, local_files_only=True, allow_patterns=[])
    except (LocalEntryNotFoundError, OSError, ValueError):
        raise ModelFileError(f"{where}: {NOT_HERE}, it is not in the cache, and {reason}") from None
    folder = Path(found)
    return folder, {
        path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()
    }


def _needed(wanted: HubId, sizes: Mapping[str, int], where: str) -> list[str]:
    """The names of the files to fetch: one GGUF model's, or what a Hugging Face directory consists of."""
    chosen = chosen_gguf(wanted, sizes, where)
    if chosen:
        return chosen
    weights = weight_files(sizes)
    if not weights:
        raise ModelFileError(f"{where}: has neither safetensors nor GGUF files (pickles are never loaded)")
    small = [name for name in sizes if "/" not in name and (name.endswith(_SMALL_SUFFIXES) or name in _SMALL_NAMES)]
    return weights + small


def chosen_gguf(wanted: HubId, sizes: Mapping[str, int], where: str) -> list[str]:
    """The files of the GGUF model that is meant, none if safetensors are. Raises `ModelFileError` if it is unclear which."""
    if wanted.choice is None and (weight_files(sizes) or not any(is_gguf(name) for name in sizes)):
        return []
    remedy = f"choose one as {wanted.repository}:QUANTIZATION or {wanted.repository}:FILE.gguf"
    return choose_gguf(sizes, wanted.choice, where, remedy)


def weight_files(sizes: Mapping[str, int]) -> list[str]:
    """The safetensors of a repository that would be loaded."""
    weights = [name for name in sizes if is_weight_file(name)]
    return ["model.safetensors"] if "model.safetensors" in weights else weights


def remote_files(repository: str, revision: str | None, where: str) -> Listing:
    from huggingface_hub import HfApi

    with failures_explained(where, revision):
        info = HfApi().model_info(repository, revision=revision, files_metadata=True)
    return Listing(info.sha or revision, {file.rfilename: file.size or 0 for file in info.siblings or ()})


def download(repository: str, revision: str | None, names: list[str], where: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]

    class TerminalBar(tqdm):
        """The library's bar, silent where stderr is not a terminal (which the library itself forgets for one of them)."""

        def __init__(self, *args: Any, **options: Any) -> None:
            options.setdefault("disable", None)
            super().__init__(*args, **options)  # type: ignore[no-untyped-call]

    patterns = [glob.escape(name) for name in names]
    with failures_explained(where, revision):
        return Path(snapshot_download(repository, revision=revision, allow_patterns=patterns, tqdm_class=TerminalBar))


@contextmanager
def failures_explained(where: str, revision: str | None) -> Iterator[None]:
    """Turns the failures of `huggingface_hub` that can be foreseen into `ModelFileError` or `UnreachableError`."""
    try:
        yield
    except Exception as error:
        explanation = _refusal(error, where, revision) or _unreachable(error)
        if explanation is None:
            raise
        raise explanation from error


def _refusal(error: Exception, where: str, revision: str | None) -> ModelFileError | None:
    from huggingface_hub import errors

    if isinstance(error, errors.HFValidationError):
        return ModelFileError(f"{where}: is not a valid hub id ({_first_line(error)})")
    # A gated repository's error is a kind of the one that says it does not exist, so it comes first.
    for kind, sentence in (
        (errors.GatedRepoError, "is gated; accept its terms on its page, then log in with `hf auth login`"),
        (
            errors.RepositoryNotFoundError,
            f"{NOT_HERE}, and the hub has none, or a private one (then log in with `hf auth login`)",
        ),
        (errors.RevisionNotFoundError, f"has no branch, tag or commit {shown(revision)}"),
    ):
        if isinstance(error, kind):
            return ModelFileError(f"{where}: {sentence}")
    return None


def _unreachable(error: Exception) -> UnreachableError | None:
    from huggingface_hub import errors

    if isinstance(error, errors.OfflineModeIsEnabled):
        return UnreachableError("offline mode is on (HF_HUB_OFFLINE)")
    if isinstance(error, errors.HfHubHTTPError):
        status: Any = getattr(error.response, "status_code", "an unknown status")
        return UnreachableError(f"the hub answered with status {status}")
    # The HTTP library's errors (which one it is depends on huggingface_hub's version) and the system's.
    if isinstance(error, OSError) or type(error).__module__.split(".")[0] in (
        "httpx",
        "httpx2",
        "requests",
        "httpcore",
    ):
        return UnreachableError(f"the hub cannot be reached ({_first_line(error)})")
    return None


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
