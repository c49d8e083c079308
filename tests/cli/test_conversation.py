from collections.abc import Iterator

import pytest

from pagoda.cli.chat import _turn
from pagoda.cli.conversation import Conversation
from pagoda.engine.outputs import CompletionDelta
from pagoda.errors import InvalidValueError
from pagoda.sampling_params import SamplingParams
from tests.cli.fake_llm import FakeHandle, FakeLLM


def talk(llm: FakeLLM, *questions: str, system: str | None = None) -> Conversation:
    conversation = Conversation(llm, system, SamplingParams())  # type: ignore[arg-type]
    for question in questions:
        conversation.keep(question, "".join(conversation.ask(question)))
    return conversation


def test_the_history_goes_with_each_question() -> None:
    llm = FakeLLM()
    talk(llm, "ab", "cd", system="be")
    assert llm.prompts[1] == [
        {"role": "system", "content": "be"},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "baeb"},
        {"role": "user", "content": "cd"},
    ]


def test_reset_forgets_all_but_the_instructions() -> None:
    llm = FakeLLM()
    conversation = talk(llm, "ab", system="s")
    conversation.reset()
    conversation.ask("cd")
    assert [message["content"] for message in llm.prompts[-1]] == ["s", "cd"]


def test_a_full_context_drops_the_oldest_exchanges_and_says_how_many() -> None:
    llm = FakeLLM(context=40)
    conversation = talk(llm, "a" * 4, "b" * 4, system="s")
    answer = conversation.ask("c" * 14)
    assert answer.num_dropped == 1
    assert llm.prompts[-1][0]["content"] == "s"
    assert "aaaa" not in [message["content"] for message in llm.prompts[-1]]
    # What was dropped stays dropped, and is not told twice.
    assert conversation.ask("d").num_dropped == 0


def test_room_is_kept_for_an_answer() -> None:
    llm = FakeLLM(context=80)
    conversation = talk(llm, "a" * 10, "b" * 10)
    # 20 + 40 of history and 11 more would fit into 80, but with less than an eighth left to answer in.
    assert conversation.ask("c" * 10).num_dropped == 0
    assert conversation.ask("c" * 11).num_dropped == 1


def test_a_question_that_is_itself_too_long_is_refused_and_forgets_nothing() -> None:
    llm = FakeLLM(context=40)
    conversation = talk(llm, "abc")
    with pytest.raises(InvalidValueError, match="prompt"):
        conversation.ask("x" * 50)
    conversation.ask("d")
    assert llm.prompts[-1][0]["content"] == "abc"


def test_an_answer_that_was_stopped_is_kept_as_it_was_shown() -> None:
    llm = FakeLLM()
    conversation = talk(llm)
    answer = conversation.ask("abcdef")
    pieces = iter(answer)
    next(pieces), next(pieces)
    conversation.keep("abcdef", answer.text)
    conversation.ask("g")
    assert [message["content"] for message in llm.prompts[-1]] == ["abcdef", "fe", "g"]


def test_ctrl_c_stops_the_answer_and_keeps_what_was_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(self: FakeHandle) -> Iterator[CompletionDelta]:
        yield CompletionDelta("fake", 0, "par", (1,))
        raise KeyboardInterrupt

    llm = FakeLLM()
    conversation = talk(llm)
    with monkeypatch.context() as patch:
        patch.setattr(FakeHandle, "__iter__", interrupted)
        _turn(conversation, "abc", stoppable=True)
        with pytest.raises(KeyboardInterrupt):
            _turn(conversation, "abc", stoppable=False)
    shown = capsys.readouterr()
    assert shown.out == "parpar"
    assert "[stopped]" in shown.err
    conversation.ask("d")
    assert [message["content"] for message in llm.prompts[-1]] == ["abc", "par", "d"]


def test_nothing_shown_nothing_kept() -> None:
    llm = FakeLLM()
    conversation = talk(llm)
    conversation.keep("abc", "")
    conversation.ask("d")
    assert [message["content"] for message in llm.prompts[-1]] == ["d"]


def test_instructions_must_leave_room_for_a_question_and_an_answer() -> None:
    Conversation(FakeLLM(context=100), "s" * 98, SamplingParams())  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="--system"):
        Conversation(FakeLLM(context=100), "s" * 99, SamplingParams())  # type: ignore[arg-type]
