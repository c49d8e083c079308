"""What `benchmarks/gpu.sh` runs."""
