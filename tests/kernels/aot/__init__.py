"""Which variants of the Triton kernels are compiled ahead of time: a file for each file of kernels. See `triton_aot`."""
