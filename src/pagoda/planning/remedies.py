"""What makes a model fit that does not: the smallest changes, each tried before it is named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pagoda.errors import InvalidValueError
from pagoda.planning.capacity import max_concurrency, max_context
from pagoda.planning.deployment import Deployment, deploy
from pagoda.planning.devices import COMPUTE_FORMATS, DEVICES
from pagoda.planning.format_changes import kv_formats, weight_formats
from pagoda.planning.gpu_holding import activation_format
from pagoda.planning.hardware import Hardware
from pagoda.planning.ledger import binary_size
from pagoda.planning.memory import LEAST_DEFAULT_CONTEXT, budget_bytes, kv_bytes_per_token
from pagoda.planning.plan import Remedy
from pagoda.planning.question import Question

# More of the memory than this is not advised: the rest of the process, and of the driver, lives there too.
MOST_ADVISED_PERCENT = 95
MOST_DEVICES = 64


@dataclass(frozen=True, slots=True)
class Tried:
    """A remedy, and the deployment in which it was tried."""

    remedy: Remedy
    deployment: Deployment


Change = tuple[Question, str, Callable[[Deployment], str]]  # what is asked instead, the option, what to say of it


def remedies(deployment: Deployment) -> tuple[Tried, ...]:
    """Changes that each make it fit, the least painful first: what is asked of it, then formats, then hardware.

    A pair of changes is named only where no single one helps.
    """
    single = [
        *_less_asked(deployment),
        *_more_of_the_memory(deployment),
        *_first(_other_kv_formats(deployment)),
        *_first(_narrower_weights(deployment)),
        *_first(_more_devices(deployment)),
        *_first(_another_device(deployment, deployment.question.num_devices)),
    ]
    return tuple(single or _pairs(deployment))


def _less_asked(deployment: Deployment) -> Iterator[Tried]:
    question = deployment.question
    requests, context = max_concurrency(deployment), max_context(deployment)
    if 0 < requests < question.concurrency:
        fewer = replace(question, concurrency=requests)
        said = f"{requests:,} of the {question.concurrency:,} requests fit at a time, the others wait"
        yield from _tried((fewer, f"--concurrency {requests}", lambda _: said))
    if min(LEAST_DEFAULT_CONTEXT, question.context) <= context < question.context:
        shorter = replace(question, context=context)
        yield from _tried((shorter, f"--context {context}", lambda _: f"requests of up to {context:,} tokens fit"))


def _more_of_the_memory(deployment: Deployment) -> Iterator[Tried]:
    question, needed = deployment.question, _needed(deployment)
    for percent in range(int(100 * question.memory_fraction) + 1, MOST_ADVISED_PERCENT + 1):
        if budget_bytes(question.device.memory_bytes, percent / 100) >= needed:
            more = replace(question, memory_fraction=percent / 100)
            yield from _tried(
                (more, f"--memory-fraction {percent / 100:g}", lambda _: "it needs no more of the memory")
            )
            return


def _other_kv_formats(deployment: Deployment) -> Iterator[Change]:
    def said(tried: Deployment) -> str:
        token = kv_bytes_per_token(tried.spec, tried.holding.kv_held) * tried.question.num_devices
        return f"K and V in {tried.kv_format} take {token:,} B a token"

    for name in kv_formats(deployment):
        if name != deployment.kv_format:
            yield replace(deployment.question, kv_format=name), f"--kv-format {name}", said


def _narrower_weights(deployment: Deployment) -> Iterator[Change]:
    def said(tried: Deployment) -> str:
        size = binary_size(tried.holding.weight_bytes * tried.question.num_devices)
        return f"weights in {tried.weight_format} take {size}"

    for name in weight_formats(deployment):
        if name != deployment.weight_format:
            yield replace(deployment.question, weight_format=name), f"--weight-format {name}", said


def _more_devices(deployment: Deployment) -> Iterator[Change]:
    question, weights = deployment.question, deployment.holding.weight_bytes * deployment.question.num_devices
    if question.threads is not None:
        return
    for count in range(question.num_devices + 1, MOST_DEVICES + 1):
        if weights <= count * deployment.budget_bytes:  # or the weights alone are too much
            yield replace(question, num_devices=count), f"--devices {count}", _held_by(count)


def _another_device(deployment: Deployment, count: int) -> Iterator[Change]:
    """The smallest of the table with which so many hold it, and that computes in the activations' format."""
    question = deployment.question
    by_size = sorted(DEVICES.values(), key=lambda device: device.memory_bytes)
    anywhere = _deployed(_moved(question, by_size[-1], count))
    if anywhere is None:
        return
    needed, computed = _needed(anywhere), COMPUTE_FORMATS[activation_format(anywhere.spec, anywhere.holding.format_of)]
    for device in by_size:
        enough = budget_bytes(device.memory_bytes, question.memory_fraction) >= needed
        if enough and computed in device.peak_flops:
            option = f"--device {device.name}" + (f" --devices {count}" if count > question.num_devices else "")
            yield _moved(question, device, count), option, _held_by(count)


def _pairs(deployment: Deployment) -> Iterator[Tried]:
    """The narrowest weights with each other kind of change; then several devices of another kind."""
    narrow = _deployed(replace(deployment.question, weight_format=weight_formats(deployment)[-1]))
    if narrow is not None and narrow.holding.weight_bytes < deployment.holding.weight_bytes:
        changes = (_other_kv_formats, _more_devices)
        for tried in (*_less_asked(narrow), *(tried for change in changes for tried in _first(change(narrow)))):
            option, sentence = tried.remedy.option, tried.remedy.sentence
            name = narrow.weight_format
            yield Tried(
                Remedy(f"--weight-format {name} {option}", f"with weights in {name} {sentence}"), tried.deployment
            )
    count = 2 * deployment.question.num_devices
    while count <= MOST_DEVICES:
        found = tuple(_first(_another_device(deployment, count)))
        if found:
            yield from found
            return
        count *= 2


def _first(changes: Iterable[Change]) -> Iterator[Tried]:
    """The first change that makes it fit, if any does."""
    for change in changes:
        found = tuple(_tried(change))
        if found:
            yield from found
            return


def _tried(change: Change) -> Iterator[Tried]:
    """The change, if it makes it fit. One that cannot be asked (heads that cannot be split) does not."""
    question, option, sentence = change
    deployment = _deployed(question)
    if deployment is not None and deployment.fits(question.concurrency, question.context):
        yield Tried(Remedy(option, sentence(deployment)), deployment)


def _deployed(question: Question) -> Deployment | None:
    try:
        return deploy(question)
    except InvalidValueError:
        return None


def _moved(question: Question, device: Hardware, count: int) -> Question:
    return replace(question, device=device, num_devices=count, threads=None, timer=None)


def _needed(deployment: Deployment) -> int:
    return deployment.needed(deployment.question.concurrency, deployment.question.context)


def _held_by(count: int) -> Callable[[Deployment], str]:
    def said(tried: Deployment) -> str:
        name, size = tried.question.device.name, binary_size(_needed(tried))
        return f"one {name} holds it, in {size}" if count == 1 else f"{count} × {name} hold it, in {size} each"

    return said
