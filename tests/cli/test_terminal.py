"""`pagoda chat` as a person at a terminal uses it: through a pseudo-terminal."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import ROOT
from tests.tiny_model import write_tiny_model

CTRL_C, CTRL_D = b"\x03", b"\x04"
PROMPT = b"> "


class Terminal:
    """A command on a pseudo-terminal. `read_until` returns what it showed up to and with the text waited for."""

    def __init__(self, *arguments: str) -> None:
        self._fd, child = pty.openpty()
        command = [sys.executable, "-c", "from pagoda.cli.main import main; main()", *arguments]
        environment = {**os.environ, "TERM": "dumb", "PYTHONUTF8": "1"}
        # A session of its own with the terminal as its controlling one, so that Ctrl-C becomes a signal.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *command], stdin=child, stdout=child, stderr=child, cwd=ROOT, env=environment
        )
        os.close(child)
        self._seen = b""

    def read_until(self, text: bytes) -> bytes:
        while text not in self._seen:
            self.read_some()
        end = self._seen.index(text) + len(text)
        shown, self._seen = self._seen[:end], self._seen[end:]
        return shown

    def read_some(self) -> None:
        ready, _, _ = select.select([self._fd], [], [], 60)
        if not ready:
            raise TimeoutError(f"nothing more came after {self._seen!r}")
        self._seen += os.read(self._fd, 4096)

    def send(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)


@pytest.mark.skipif(shutil.which("setsid") is None, reason="needs setsid, which Linux has")
def test_a_conversation_with_an_answer_stopped(tmp_path: Path) -> None:
    # Long enough an answer that it is still under way when Ctrl-C comes.
    model = write_tiny_model(tmp_path / "tiny", context_length=8192)
    terminal = Terminal("chat", str(model), "--temperature", "0", "--ignore-eos")
    try:
        assert b"Ctrl-C stops an answer" in terminal.read_until(PROMPT)
        terminal.send(b"Hi\n")
        terminal.read_until(b"Hi\r\n")
        terminal.read_some()
        terminal.send(CTRL_C)
        terminal.read_until(b"[stopped]\r\n" + PROMPT)
        terminal.send(b"/reset\n")
        terminal.read_until(b"[forgotten]\r\n" + PROMPT)
        terminal.send(CTRL_D)
        assert terminal.process.wait(timeout=60) == 0
    finally:
        terminal.close()
