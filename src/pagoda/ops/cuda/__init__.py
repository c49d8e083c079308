"""The GPU's execution of the ops: a model is recorded once, lowered to a few kernels a layer, and launched from there.

Every kernel is written in Triton, whose interpreter (`TRITON_INTERPRET=1`) runs the same code over CPU tensors.
"""

import os

# Products with their additions fused, as in all releases of Triton before 3.10; from 3.9 on it wants to be told.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
