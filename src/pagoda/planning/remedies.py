"""What makes a model fit that does not: the smallest changes, each tried before it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pagoda.errors import InvalidValueError
from pagoda.planning.capacity import max_concurrency, max_context
from pagoda.planning.deployment import Deployment, deploy
from pagoda.planning.devices import DEVICES
from pagoda.planning.format_changes import kv_formats, weight_formats
from pagoda.planning.ledger import binary_size
from pagoda.planning.memory import LEAST_DEFAULT_CONTEXT, budget_bytes
from pagoda.planning.plan import Remedy
from pagoda.planning.question import Question

# More of the memory than this is not advised: the rest of the process, and of the driver, lives there too.
MOST_ADVISED_FRACTION = 0.95
MOST_DEVICES = 64


@dataclass(frozen=True, slots=True)
class Tried:
    """A remedy, and the deployment in which it was tried."""

    remedy: Remedy
    deployment: Deployment


def remedies(deployment: Deployment) -> tuple[Tried, ...]:
    """Changes that each make it fit, the least painful first: what is asked of it, then formats, then hardware.

    A pair of changes is named only where no single one helps.
    """
    single = [
        *_less_asked(deployment),
        *_more_of_the_memory(deployment),
        *_other_kv_format(deployment),
        *_other_weight_format(deployment),
        *_more_devices(deployment),
        *_another_device(deployment),
    ]
    return tuple(single or _pairs(deployment))


def _less_asked(deployment: Deployment) -> Iterator[Tried]:
    question = deployment.question
    requests = max_concurrency(deployment)
    if 0 < requests < question.concurrency:
        yield from _tried(
            replace(question, concurrency=requests),
            f"--concurrency {requests}",
            lambda _: f"{requests:,} of the {question.concurrency:,} requests at a time fit, the others wait",
        )
    context = max_context(deployment)
    if min(LEAST_DEFAULT_CONTEXT, question.context) <= context < question.context:
        yield from _tried(
            replace(question, context=context),
            f"--context {context}",
            lambda _: f"requests of up to {context:,} tokens fit",
        )


def _more_of_the_memory(deployment: Deployment) -> Iterator[Tried]:
    question = deployment.question
    needed = _needed(deployment)
    hundredths = range(int(100 * question.memory_fraction) + 1, int(100 * MOST_ADVISED_FRACTION) + 1)
    for fraction in (value / 100 for value in hundredths):
        if budget_bytes(question.device.memory_bytes, fraction) >= needed:
            yield from _tried(
                replace(question, memory_fraction=fraction),
                f"--memory-fraction {fraction:g}",
                lambda _, fraction=fraction: f"{fraction:.0%} of the memory are enough",  # type: ignore[misc]
            )
            return


def _other_kv_format(deployment: Deployment) -> Iterator[Tried]:
    question = deployment.question
    changes = (
        (replace(question, kv_format=name), f"--kv-format {name}", _kv_sentence(name))
        for name in kv_formats(deployment)
        if name != deployment.kv_format
    )
    yield from _first(changes)


def _other_weight_format(deployment: Deployment) -> Iterator[Tried]:
    question = deployment.question
    changes = (
        (replace(question, weight_format=name), f"--weight-format {name}", _weight_sentence(name))
        for name in _narrower(deployment)
    )
    yield from _first(changes)


def _more_devices(deployment: Deployment) -> Iterator[Tried]:
    question = deployment.question
    if question.threads is not None or question.device.link_bandwidth is None:
        return
    changes = (
        (replace(question, num_devices=count), f"--devices {count}", _devices_sentence(count, question.device.name))
        for count in range(question.num_devices + 1, MOST_DEVICES + 1)
    )
    yield from _first(changes)


def _another_device(deployment: Deployment) -> Iterator[Tried]:
    """The smallest one of the table that is larger; so many of them as there are now."""
    question = deployment.question
    larger = [device for device in DEVICES.values() if device.memory_bytes > question.device.memory_bytes]
    changes = (
        (_moved(question, name), f"--device {name}", _device_sentence(name))
        for name in (device.name for device in sorted(larger, key=lambda device: device.memory_bytes))
    )
    yield from _first(changes)


def _pairs(deployment: Deployment) -> Iterator[Tried]:
    """The narrowest weights with each other kind of change; then several of the largest devices."""
    question = deployment.question
    for name in _narrower(deployment)[-1:]:
        narrow = _deployed(replace(question, weight_format=name))
        if narrow is None:
            continue
        kinds = (_less_asked, _other_kv_format, _more_devices, _another_device)
        for tried in (tried for kind in kinds for tried in kind(narrow)):
            option = f"--weight-format {name} {tried.remedy.option}"
            yield Tried(Remedy(option, f"with weights in {name} {tried.remedy.sentence}"), tried.deployment)
    for count in (2, 4, 8, 16, 32, 64):
        by_size = sorted(DEVICES.values(), key=lambda device: device.memory_bytes)
        changes = [
            (
                replace(_moved(question, device.name), num_devices=count),
                f"--device {device.name} --devices {count}",
                _devices_sentence(count, device.name),
            )
            for device in by_size
        ]
        found = tuple(_first(changes))
        if found:
            yield from found
            return


Sentence = Callable[[Deployment], str]


def _first(changes: Iterable[tuple[Question, str, Sentence]]) -> Iterator[Tried]:
    """The first change that makes it fit, if any does."""
    for question, option, sentence in changes:
        found = tuple(_tried(question, option, sentence))
        if found:
            yield from found
            return


def _tried(question: Question, option: str, sentence: Sentence) -> Iterator[Tried]:
    """The change, if it makes it fit. One that cannot be asked (heads that cannot be split) does not."""
    deployment = _deployed(question)
    if deployment is not None and deployment.fits(question.concurrency, question.context):
        yield Tried(Remedy(option, sentence(deployment)), deployment)


def _deployed(question: Question) -> Deployment | None:
    try:
        return deploy(question)
    except InvalidValueError:
        return None


def _narrower(deployment: Deployment) -> tuple[str, ...]:
    """Weight formats in which it would be held in less, the widest first."""
    names = [name for name in weight_formats(deployment) if name != deployment.weight_format]
    sizes = {name: deploy(replace(deployment.question, weight_format=name)).holding.weight_bytes for name in names}
    return tuple(name for name in names if sizes[name] < deployment.holding.weight_bytes)


def _moved(question: Question, name: str) -> Question:
    return replace(question, device=DEVICES[name], threads=None, timer=None)


def _needed(deployment: Deployment) -> int:
    demand = deployment.demand(deployment.question.concurrency, deployment.question.context)
    return demand.total(demand.least_blocks)


def _kv_sentence(name: str) -> Sentence:
    return lambda _: f"K and V in {name} take half of the memory"


def _weight_sentence(name: str) -> Sentence:
    return lambda tried: (
        f"weights in {name} take {binary_size(tried.holding.weight_bytes * tried.question.num_devices)}"
    )


def _devices_sentence(count: int, name: str) -> Sentence:
    return lambda tried: f"{count} × {name} hold {binary_size(_needed(tried))} each"


def _device_sentence(name: str) -> Sentence:
    return lambda tried: f"{tried.question.num_devices} × {name} hold it: {binary_size(_needed(tried))} each"
