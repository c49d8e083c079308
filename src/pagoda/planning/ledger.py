"""MemoryPlan: how the memory is divided, as a ledger whose parts sum exactly to the whole."""

from __future__ import annotations

from dataclasses import asdict, dataclass

KIB = 1024


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One part of the usable memory. `note`: where the figure comes from."""

    name: str
    num_bytes: int
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """What the runner allocates and the scheduler may count on.

    entries           parts of usable_bytes in order: not used, weights, workspace, KV cache, left; they sum to it
    budget_bytes      memory_fraction of usable_bytes
    block_bytes       one KV block of block_size tokens, over all layers
    num_blocks        KV blocks to allocate
    max_model_len     longest sequence, prompt and output, in tokens: at most num_blocks × block_size
    """

    entries: tuple[LedgerEntry, ...]
    usable_bytes: int
    budget_bytes: int
    memory_fraction: float
    weight_bytes: int
    workspace_bytes: int
    block_size: int
    block_bytes: int
    num_blocks: int
    max_model_len: int
    max_num_seqs: int
    max_batched_tokens: int

    @property
    def kv_bytes(self) -> int:
        return self.num_blocks * self.block_bytes

    @property
    def kv_bytes_per_token(self) -> int:
        return self.block_bytes // self.block_size

    @property
    def num_kv_tokens(self) -> int:
        """Tokens the cache holds, over all sequences."""
        return self.num_blocks * self.block_size

    @property
    def left_bytes(self) -> int:
        return self.budget_bytes - self.weight_bytes - self.workspace_bytes - self.kv_bytes

    @property
    def full_length_seqs(self) -> float:
        """How many sequences of max_model_len tokens the cache holds at once."""
        return self.num_blocks / -(-self.max_model_len // self.block_size)

    def as_dict(self) -> dict[str, object]:
        """All figures under their field names, for JSON."""
        plan: dict[str, object] = asdict(self)
        plan["kv_bytes"] = self.kv_bytes
        plan["kv_bytes_per_token"] = self.kv_bytes_per_token
        plan["num_kv_tokens"] = self.num_kv_tokens
        plan["left_bytes"] = self.left_bytes
        return plan


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """What a loaded model takes, added up over the arrays that hold it."""

    weight_bytes: int
    kv_bytes: int


def format_held(plan: MemoryPlan, held: HeldBytes) -> str:
    """Prediction against measurement, in a line: what the plan said of weights and KV cache, and what they came to."""
    pairs = (("weights", plan.weight_bytes, held.weight_bytes), ("KV cache", plan.kv_bytes, held.kv_bytes))
    return "; ".join(f"{name} {_compared(predicted, measured)}" for name, predicted, measured in pairs)


def _compared(predicted: int, measured: int) -> str:
    if predicted == measured:
        return f"{measured:,} B, as predicted"
    return f"{measured:,} B, predicted {predicted:,} B ({100 * (predicted - measured) / max(measured, 1):+.2f}%)"


def format_ledger(plan: MemoryPlan) -> str:
    """The ledger as lines of text: each part in binary units and in bytes, then the sum and what it allows."""
    rows = [(entry.name, entry.num_bytes, entry.note) for entry in plan.entries]
    rows.append(("usable", plan.usable_bytes, decimal_size(plan.usable_bytes)))
    name_width = max(len(name) for name, _, _ in rows)
    byte_width = max(len(f"{size:,}") for _, size, _ in rows)
    lines = [
        f"{name:<{name_width}}  {binary_size(size):>10}  {size:>{byte_width},} B  {note}" for name, size, note in rows
    ]
    lines.insert(-1, "-" * (name_width + byte_width + 16))
    lines.append(
        f"The cache holds {plan.num_kv_tokens:,} tokens ({plan.kv_bytes_per_token:,} B each): "
        f"{plan.full_length_seqs:.1f} sequences of max_model_len {plan.max_model_len:,}."
    )
    return "\n".join(lines)


def binary_size(num_bytes: int) -> str:
    """In powers of 1024: "1.50 GiB"."""
    return _scaled(num_bytes, KIB, ("B", "KiB", "MiB", "GiB", "TiB"))


def decimal_size(num_bytes: int) -> str:
    """In powers of 1000, as disks and data sheets count: "1.61 GB"."""
    return _scaled(num_bytes, 1000, ("B", "kB", "MB", "GB", "TB"))


def _scaled(num_bytes: int, base: int, units: tuple[str, ...]) -> str:
    value, unit = float(num_bytes), units[0]
    for larger in units[1:]:
        if abs(value) < base:
            break
        value, unit = value / base, larger
    return f"{num_bytes:,} B" if unit == "B" else f"{value:.2f} {unit}"
