"""Trouble 7: minutes of compiling and capturing before the first token. Right: nothing is built, before it or after.

Not by a clock: Python's audit events tell whether a process was started, a file written, or code imported or compiled.
"""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys

from pagoda import LLM, SamplingParams

stage, seen = "loading", []

def hook(name, arguments):
    if name.startswith(("subprocess.", "os.posix_spawn", "os.fork", "os.exec", "os.system")):
        seen.append((stage, name))
    if name == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        if not str(arguments[0]).startswith("/proc/"):  # threads are named there
            seen.append((stage, f"writes {arguments[0]}"))
    if stage != "loading" and name in ("import", "compile"):
        seen.append((stage, f"{name} {arguments[0] if name == 'import' else arguments[1]}"))

sys.dont_write_bytecode = True
sys.addaudithook(hook)
llm = LLM(MODEL, device="cpu", num_kv_blocks=32, max_batched_tokens=32)
# One and many tokens, one and many requests, greedy and not: no shape is new to it.
sampling = SamplingParams(temperature=0.5, seed=1, max_tokens=3, ignore_eos=True)
prompts = [[1], [1, 2, 3], list(range(100)), [7] * 40]
stage = "the first token"
llm.generate([prompts[0]], sampling)
stage = "more"
llm.generate(prompts, sampling)
stage = "done"
print(json.dumps(seen))
llm.close()
"""


def test_nothing_is_compiled_imported_or_written_once_it_is_loaded(tiny_model: str) -> None:
    code = f"MODEL = {tiny_model!r}\n{PROGRAM}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(ended.stdout) == []


def test_the_hook_would_see_it() -> None:
    """Compiling, as an engine would do it that builds kernels for each shape, does raise these events."""
    code = PROGRAM.partition("llm = LLM")[0] + (
        "import subprocess, tempfile\n"
        "subprocess.run(['true'])\n"
        "stage = 'the first token'\n"
        "tempfile.TemporaryFile('w').close()\n"
        "compile('1 + 1', 'kernel', 'eval')\n"
        "print(json.dumps(sorted({event.partition(' ')[0] for _, event in seen})))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert {"subprocess.Popen", "compile"} <= set(json.loads(ended.stdout))
