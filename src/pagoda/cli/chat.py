"""`pagoda chat`: talk to a model in the terminal, ask it once, or pipe questions in."""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING, Annotated

import typer

from pagoda.cli.console import interactive, note, print_json, write
from pagoda.cli.loading import load
from pagoda.cli.options import with_derived_options
from pagoda.cli.refusals import worded
from pagoda.cli.streams import read_stdin, stdin_lines
from pagoda.config import EngineConfig
from pagoda.errors import EngineClosedError, PagodaError
from pagoda.sampling_params import SamplingParams

if TYPE_CHECKING:
    from pagoda.cli.conversation import Conversation
    from pagoda.engine.outputs import RequestOutput

PARTLY_FAILED = 1
HELP = "/help shows this, /reset forgets the conversation, /quit or Ctrl-D ends it; Ctrl-C stops an answer."


@with_derived_options
def chat(
    *,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="Answer this once and end; - reads stdin.")
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", "-s", help="Instructions that stay before everything.")
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="With --prompt: print one JSON object and nothing else.")
    ] = False,
    sampling: SamplingParams,
    config: EngineConfig,
) -> None:
    """Talk to a model. Without a terminal, every line of stdin is answered in turn.

    In the conversation: /help, /reset, /quit; Ctrl-C stops an answer, Ctrl-D ends.
    """
    if sampling.n != 1:
        raise PagodaError(f"--n: got {sampling.n}, must be 1 in a chat, which goes on from one answer")
    if json_ and prompt is None:
        raise PagodaError("--json needs --prompt: only a single answer is one object")
    if not json_ and (sampling.logprobs is not None or sampling.prompt_logprobs is not None):
        raise PagodaError("--logprobs and --prompt-logprobs need --json, which can show them")

    from pagoda.cli.conversation import Conversation

    with load(config) as llm:
        conversation = Conversation(llm, system, sampling)
        if prompt is not None:
            _answer_once(conversation, read_stdin().removesuffix("\n") if prompt == "-" else prompt, json_)
        elif interactive():
            note(f"{config.model} is ready. {HELP}")
            _talk(conversation)
        else:
            _answer_lines(conversation)


def _answer_once(conversation: Conversation, prompt: str, json_: bool) -> None:
    from pagoda.cli.results import checked, result_json, wait_for

    answer = conversation.ask(prompt)
    if json_:
        print_json(result_json(wait_for(answer.handle, conversation.most_tokens)))
        return
    for piece in answer:
        write(piece)
    write("\n")
    _say_why_cut(checked(answer.handle.result()), conversation.max_tokens)


def _talk(conversation: Conversation) -> None:
    with contextlib.suppress(ImportError):  # not on every platform
        import readline  # noqa: F401  (gives input() editing and history)

    while True:
        try:
            text = input("> ").strip()
        except EOFError:
            write("\n")
            return
        except KeyboardInterrupt:
            note("\nCtrl-D or /quit ends the chat.")
            continue
        if text == "/quit":
            return
        if text and not _command(conversation, text):
            try:
                _turn(conversation, text, stoppable=True)
            except EngineClosedError:
                raise
            except PagodaError as error:
                note(f"[{worded(error)}]")


def _answer_lines(conversation: Conversation) -> None:
    """Answers each line of stdin. What one line does wrong ends that line, and is told by the exit code at the end."""
    num_failed = 0
    for line in stdin_lines():
        text = line.strip()
        if text == "/quit":
            break
        if not text or _command(conversation, text):
            continue
        try:
            _turn(conversation, text, stoppable=False)
        except EngineClosedError:
            raise
        except PagodaError as error:
            note(f"pagoda: {worded(error)}")
            num_failed += 1
    if num_failed:
        raise typer.Exit(PARTLY_FAILED)


def _command(conversation: Conversation, text: str) -> bool:
    """Carry out /help or /reset; True also for a word after a slash that is no command, so that it is not sent."""
    if not re.fullmatch(r"/[a-z]+", text):
        return False
    if text == "/reset":
        conversation.reset()
        note("[forgotten]")
    else:
        note(HELP if text == "/help" else f"[{text} is no command. {HELP}]")
    return True


def _turn(conversation: Conversation, text: str, stoppable: bool) -> None:
    """Show the answer as it comes and keep it. stoppable: Ctrl-C ends the answer, not the program."""
    started = time.perf_counter()
    answer = conversation.ask(text)
    if answer.num_dropped:
        plural = "s were" if answer.num_dropped > 1 else " was"
        note(f"[the context is full: the oldest {answer.num_dropped} exchange{plural} dropped]")
    first = 0.0
    try:
        for piece in answer:
            first = first or time.perf_counter()
            write(piece)
        write("\n")
        result = answer.handle.result()
    except KeyboardInterrupt:
        if not stoppable:
            raise
        answer.handle.cancel()
        note("\n[stopped]")
        conversation.keep(text, answer.text)
        return
    if result.error is not None:
        raise result.error
    conversation.keep(text, answer.text)
    _say_why_cut(result, conversation.max_tokens)
    if stoppable and (count := result.usage.completion_tokens) > 1:
        rate = (count - 1) / max(time.perf_counter() - first, 1e-9)
        note(f"[{count} tokens, the first after {first - started:.2f} s, then {rate:.1f} a second]")


def _say_why_cut(result: RequestOutput, sampling_limit: int | None) -> None:
    if result.outputs[0].finish_reason == "length":
        total = result.usage.total_tokens
        why = f"the context of {total:,} tokens is full" if sampling_limit is None else f"--max-tokens {sampling_limit}"
        note(f"[the answer was cut here: {why}]")
