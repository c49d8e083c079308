"""The GPU's execution of the ops: a model is recorded once, lowered to a few kernels a layer, and launched from there.

Every kernel is written in Triton, whose interpreter (`TRITON_INTERPRET=1`) runs the same code over CPU tensors.
"""
