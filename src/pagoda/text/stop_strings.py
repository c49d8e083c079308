"""StopStrings: finds the strings that end a text while the text arrives in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class StopStrings:
    """Feed it text as it is generated; it returns what may be shown, and says when a stop string was found.

    Of all occurrences the one that begins earliest ends the text, and of several that begin there the shortest. Neither
    the stop string nor anything behind it is shown. Text that might begin a stop string is held back, and no more than
    that: the longest end of the text that begins a stop string. The result does not depend on how the text is cut into
    pieces. Time is linear in the text, whatever the number of stop strings (Aho and Corasick, CACM 18(6), 1975).
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._automaton = _Automaton(tuple(stops))
        self._reset()

    def fresh(self) -> StopStrings:
        """One for another text, with the same stop strings (their preparation is shared)."""
        other = StopStrings.__new__(StopStrings)
        other._automaton = self._automaton
        other._reset()
        return other

    def _reset(self) -> None:
        self.found: str | None = None
        self._held = ""
        self._state = 0
        self._position = 0
        self._candidate: tuple[int, str] | None = None

    def push(self, text: str, active: bool = True) -> tuple[str, str | None]:
        """(what may be shown now, the stop string found or None). After one was found, everything is swallowed.

        active=False: the text is shown as it is, and no stop string can begin in it (min_tokens is not reached yet).
        """
        if self.found is not None:
            return "", self.found
        if not active or self._automaton.is_empty:
            return self._pass_through(text), None
        buffer = self._held + text
        buffer_start = self._position - len(self._held)
        for character in text:
            self._position += 1
            self._state = state = self._automaton.next_state(self._state, character)
            ending = self._automaton.ending[state]
            if ending is not None and (self._candidate is None or self._position - len(ending) < self._candidate[0]):
                self._candidate = (self._position - len(ending), ending)
            # A candidate is final once nothing that began before it can still become a stop string.
            if self._candidate and self._candidate[0] <= self._position - self._automaton.depth[state]:
                return self._stop(self._candidate, buffer, buffer_start)
        num_held = self._automaton.depth[self._state]
        self._held = buffer[len(buffer) - num_held :]
        return buffer[: len(buffer) - num_held], None

    @property
    def end(self) -> int | None:
        """The position in the text right behind the stop string that was found, or that will end the text unless a longer
        one that began before it is completed; None while there is neither."""
        return None if self._candidate is None else self._candidate[0] + len(self._candidate[1])

    def finish(self) -> tuple[str, str | None]:
        """No more text comes: (the rest that may be shown, the stop string found or None).

        A stop string can be found only here when a longer one had begun before it and was not completed.
        """
        if self.found is not None:
            return "", self.found
        if self._candidate is not None:
            return self._stop(self._candidate, self._held, self._position - len(self._held))
        return self._pass_through(""), None

    def _stop(self, candidate: tuple[int, str], buffer: str, buffer_start: int) -> tuple[str, str]:
        start, stop = candidate
        self.found, self._held = stop, ""
        return buffer[: start - buffer_start], stop

    def _pass_through(self, text: str) -> str:
        shown = self._held + text
        self._held, self._state, self._candidate = "", 0, None
        self._position += len(text)
        return shown


class _Automaton:
    """A trie of the stop strings with, for each node, the node of its longest proper suffix.

    depth[node]: its length in characters. ending[node]: the longest stop string that the node's text ends with, or None.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._children: list[dict[str, int]] = [{}]
        self._suffix = [0]
        self.depth = [0]
        self.ending: list[str | None] = [None]
        for stop in stops:
            if stop:
                self._insert(stop)
        self._link()

    @property
    def is_empty(self) -> bool:
        return len(self.depth) == 1

    def next_state(self, state: int, character: str) -> int:
        while state and character not in self._children[state]:
            state = self._suffix[state]
        return self._children[state].get(character, 0)

    def _insert(self, stop: str) -> None:
        node = 0
        for character in stop:
            child = self._children[node].get(character)
            if child is None:
                child = len(self._children)
                self._children[node][character] = child
                self._children.append({})
                self._suffix.append(0)
                self.depth.append(self.depth[node] + 1)
                self.ending.append(None)
            node = child
        self.ending[node] = stop

    def _link(self) -> None:
        queue = deque(self._children[0].values())
        while queue:
            node = queue.popleft()
            for character, child in self._children[node].items():
                self._suffix[child] = self.next_state(self._suffix[node], character)
                if self.ending[child] is None:
                    self.ending[child] = self.ending[self._suffix[child]]
                queue.append(child)
