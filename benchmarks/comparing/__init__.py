"""Parts of `benchmarks/compare_cpu.py`."""
