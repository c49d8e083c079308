"""How many requests fit, and how long ones: the memory formula, solved for either."""

from __future__ import annotations

from pagoda.planning.deployment import Deployment
from pagoda.planning.memory import kv_block_bytes, largest, num_blocks_for


def max_concurrency(deployment: Deployment) -> int:
    """How many requests of the context asked for fit at once; 0: not one."""
    context, block_size = deployment.question.context, deployment.question.block_size
    block = kv_block_bytes(deployment.spec, block_size, deployment.holding.kv_held)
    most = deployment.budget_bytes // (num_blocks_for(context, block_size) * block)
    return largest(lambda requests: not requests or deployment.fits(requests, context), 0, most)


def max_context(deployment: Deployment) -> int:
    """The longest context, in tokens, that the number of requests asked for can have; never above the model's own.

    Caches are whole blocks, so nearly always it ends with one; 0: not a token each.
    """
    question = deployment.question
    requests, longest = question.concurrency, question.spec.context_length
    return largest(lambda context: not context or deployment.fits(requests, context), 0, longest)


def compute_bound_from(deployment: Deployment) -> int | None:
    """The smallest batch whose decode step at this context takes more compute than memory time; None: there is none.

    Compute grows with the batch, and so does reading K and V, while reading weights does not (experts: less and less). So
    from some batch on compute binds, or, where a request's own K and V take longer to read than its token to compute, never.
    """
    context = deployment.question.context

    def computes(batch: int) -> bool:
        bound = deployment.decode_bound(batch, context)
        return bound.compute_seconds >= bound.memory_seconds

    batch = 1
    while not computes(batch):
        batch *= 2
        if batch > _ABSURD_BATCH:
            return None
    return largest(lambda smaller: not computes(smaller), 0, batch - 1) + 1 if batch > 1 else 1


_ABSURD_BATCH = 1 << 40
