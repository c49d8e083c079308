"""A GPU's machine may have torch and Triton and little else: a model runs there without the server's packages, without the
command line's, and without the native module."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

HIDDEN = (
    "fastapi",
    "uvicorn",
    "starlette",
    "pydantic",
    "msgspec",
    "prometheus_client",
    "typer",
    "rich",
    "huggingface_hub",
    "safetensors",
    "pagoda._native",
)
HIDING = f"""
import sys

class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name in {HIDDEN}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hiding())
"""
ON_A_GPU = """
import torch
from pagoda.runner import cuda_device

if not torch.cuda.is_available():  # then in Triton's interpreter
    cuda_device.find_gpu = lambda: cuda_device.Gpu("none", (9, 0), 1 << 30)
"""
RUNNING = """
from pagoda import LLM, SamplingParams

with LLM(MODEL, device=DEVICE, dtype="float32", num_kv_blocks=32, max_num_seqs=2, max_batched_tokens=32, threads=1) as llm:
    sampling = SamplingParams(temperature=0.9, seed=1, top_p=0.9, logprobs=2, max_tokens=2, ignore_eos=True)
    assert len(llm.generate("Hello", sampling)[0].outputs[0].token_ids) == 2
    assert llm.chat([{"role": "user", "content": "Hello"}], sampling)[0].error is None
print("ran")
"""


@pytest.mark.parametrize("device", ["reference", "cuda"])
def test_a_model_runs(tiny_model: str, device: str) -> None:
    code = f"{HIDING}\nMODEL, DEVICE = {tiny_model!r}, {device!r}\n{ON_A_GPU if device == 'cuda' else ''}\n{RUNNING}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)
    assert (ended.stdout, ended.returncode) == ("ran\n", 0), ended.stderr
