"""Engine: composition. Everything that runs one model is put together here and nowhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from pagoda.config import EngineConfig
from pagoda.core.contiguous_manager import ContiguousKVCacheManager
from pagoda.core.kv_cache_manager import KVCacheManager
from pagoda.core.kv_interface import KVManager
from pagoda.core.policies import make_policy
from pagoda.core.prefix_cache import PrefixCache
from pagoda.core.scheduler import Scheduler, SchedulerConfig
from pagoda.engine.admission import Admission
from pagoda.engine.client import EngineClient
from pagoda.engine.core import EngineCore
from pagoda.engine.fingerprint import fingerprint
from pagoda.errors import InvalidValueError, ModelFileError
from pagoda.loading.checkpoint import Checkpoint
from pagoda.loading.resolve import open_checkpoint
from pagoda.models.registry import family_for
from pagoda.models.weights import check_inventory
from pagoda.planning.costs import CostModel
from pagoda.planning.cuda_holding import CudaSettings, cuda_holding
from pagoda.planning.holding import FormatOf, Holding, torch_holding
from pagoda.planning.ledger import HeldBytes, MemoryPlan
from pagoda.planning.memory import plan_memory
from pagoda.planning.model_spec import ModelSpec, WeightSpec
from pagoda.planning.native_holding import native_holding
from pagoda.progress import Progress, silent
from pagoda.runner.choose import choose_device
from pagoda.runner.interface import LoadedRunner
from pagoda.telemetry.steps import StepLog
from pagoda.text.chat_template import chat_template_of
from pagoda.text.directory_vocabulary import tokenizer_from_directory
from pagoda.text.gguf_vocabulary import tokenizer_from_gguf
from pagoda.text.tokenizer import Tokenizer


class Engine:
    """One model, loaded and running. Whatever can be refused is refused before its weights are read.

    Raises `PagodaError`: for files that are wrong, a model that is not supported, limits that do not fit.
    """

    def __init__(
        self,
        config: EngineConfig,
        progress: Progress = silent,
        on_plan: Callable[[MemoryPlan], None] = lambda plan: None,
    ) -> None:
        """on_plan: called with the memory plan before any weight is read."""
        started = time.perf_counter()
        self._config, self.device = config, choose_device(config)

        def accept(model_config: Mapping[str, Any]) -> None:
            self.spec: ModelSpec = family_for(model_config).spec(model_config)
            dense = "dtype" in model_config and not model_config.get("quantization_config")
            least = "BF16" if dense else _least_format
            plan_memory(self._holding(least), config, usable_bytes=self.device.usable_bytes)

        # What cannot run is refused from its configuration, before its weights are downloaded.
        with closing(open_checkpoint(config.model, config.revision, accept)) as checkpoint:
            names = check_inventory(checkpoint, family_for(checkpoint.config), self.spec)
            self.holding = self._holding({weight: checkpoint.tensors[name].format for weight, name in names.items()})
            self.plan: MemoryPlan = plan_memory(self.holding, config, usable_bytes=self.device.usable_bytes)
            on_plan(self.plan)
            self.tokenizer: Tokenizer = load_tokenizer(checkpoint, self.spec)
            template = _template_source(config, self.tokenizer)
            defaults = _defaults(config, checkpoint.generation_config)
            self.fingerprint = fingerprint(checkpoint, config, self.device, template, defaults)
            self.admission = Admission(
                self.tokenizer,
                None if template is None else chat_template_of(self.tokenizer, template),
                defaults,
                self.plan.max_model_len,
                policy=config.policy,
                max_n=config.max_n,
                max_stop_strings=config.max_stop_strings,
            )
            self.runner = self._build_runner(config, checkpoint, progress)
        self.held: HeldBytes = self.runner.held
        self.costs = CostModel(self.spec, self.holding.format_of, self.holding.kv_held)
        self.step_log = StepLog()
        self.client = EngineClient(
            self._core(self._kv_manager(config), self.step_log),
            self.tokenizer,
            config.max_num_seqs + config.max_waiting,
        )
        self.load_seconds = time.perf_counter() - started

    def close(self) -> None:
        self.client.close()

    def own_loop(self, kv: KVManager) -> EngineCore:
        """A step loop over the loaded model with KV blocks given out by `kv`, for experiments: whoever asks for it turns it.

        The client must have nothing under way meanwhile, nor an older loop of this kind; kv has at most `plan.num_blocks`
        blocks, of the configured size.
        """
        self.runner.forget_all()
        return self._core(kv, StepLog())

    def _holding(self, stored: FormatOf) -> Holding:
        """How the device holds the model, of whose weights files have these formats."""
        if self.device.kind == "cpu":
            return native_holding(
                self.spec, stored, self.device.quantization, self.device.threads, self.device.kv_dtype
            )
        if self.device.kind == "cuda":
            return cuda_holding(
                self.spec,
                stored,
                CudaSettings(
                    quantization=self.device.quantization,
                    dtype=self.device.dtype,
                    kv_dtype=self.device.kv_dtype,
                    block_size=self._config.block_size,
                ),
            )
        return torch_holding(self.spec, self.device.element_bytes)

    def _build_runner(self, config: EngineConfig, checkpoint: Checkpoint, progress: Progress) -> LoadedRunner:
        family, device = family_for(checkpoint.config), self.device
        if device.kind == "cuda":
            from pagoda.runner.cuda_build import build_cuda_runner

            return build_cuda_runner(
                checkpoint,
                family,
                self.spec,
                device=device,
                num_blocks=self.plan.num_blocks,
                block_size=config.block_size,
                max_num_seqs=config.max_num_seqs,
                max_batched_tokens=config.max_batched_tokens,
                max_model_len=self.plan.max_model_len,
                real_vocab_size=self.tokenizer.vocab_size,
                progress=progress,
            )
        if device.instruction_set is not None:
            from pagoda.runner.native_runner import build_native_runner

            return build_native_runner(
                checkpoint,
                family,
                self.spec,
                threads=device.threads,
                instruction_set=device.instruction_set,
                quantization=device.quantization,
                kv_dtype=device.kv_dtype,
                num_blocks=self.plan.num_blocks,
                block_size=config.block_size,
                max_num_seqs=config.max_num_seqs,
                max_batched_tokens=config.max_batched_tokens,
                real_vocab_size=self.tokenizer.vocab_size,
                progress=progress,
            )
        from pagoda.runner.torch_runner import build_torch_runner

        return build_torch_runner(
            checkpoint,
            family,
            self.spec,
            device="cpu",
            dtype=device.dtype,
            num_blocks=self.plan.num_blocks,
            block_size=config.block_size,
            max_num_seqs=config.max_num_seqs,
            real_vocab_size=self.tokenizer.vocab_size,
            progress=progress,
        )

    def _core(self, kv: KVManager, step_log: StepLog) -> EngineCore:
        scheduler = Scheduler(SchedulerConfig.of(self._config), kv, make_policy(self._config))
        # On a GPU the next step is scheduled while this one runs; the CPU has nothing to overlap with.
        depth = 1 if self.device.kind == "cuda" else 0
        return EngineCore(scheduler, self.runner, self.costs, step_log, depth)

    def _kv_manager(self, config: EngineConfig) -> KVManager:
        if config.kv_allocation == "contiguous":
            return ContiguousKVCacheManager(self.plan.num_blocks, config.block_size)
        cache = PrefixCache(config.block_size) if config.has_prefix_cache else None
        return KVCacheManager(self.plan.num_blocks, config.block_size, cache, self.spec.widest_window)


def _least_format(weight: WeightSpec) -> str:
    """The smallest format that a weight may have in a file; what is in it is known once it is there."""
    return "F16" if weight.shape[-1] % 32 else "Q4_0"


def load_tokenizer(checkpoint: Checkpoint, spec: ModelSpec) -> Tokenizer:
    """The checkpoint's own tokenizer. Raises `ModelFileError` where it has more tokens than the model has rows."""
    if checkpoint.directory is not None:
        tokenizer = tokenizer_from_directory(checkpoint.directory)
    else:
        tokenizer = tokenizer_from_gguf(checkpoint.metadata)
    if tokenizer.vocab_size > spec.vocab_size:
        raise ModelFileError(
            f"{checkpoint.name}: the tokenizer has {tokenizer.vocab_size:,} tokens, but the model only {spec.vocab_size:,}"
        )
    return tokenizer


def _template_source(config: EngineConfig, tokenizer: Tokenizer) -> str | None:
    """The operator's chat template, or the model's own; None where there is neither."""
    if config.chat_template is None:
        return tokenizer.chat_template
    try:
        return Path(config.chat_template).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise InvalidValueError("chat_template", config.chat_template, f"a file that can be read ({reason})") from None


def _defaults(config: EngineConfig, generation_config: Mapping[str, object]) -> Mapping[str, object]:
    if config.generation_config == "auto":
        return generation_config
    # Which tokens end a text is a property of the model, not a matter of taste.
    return {name: value for name, value in generation_config.items() if name == "eos_token_id"}
