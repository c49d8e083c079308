#!/usr/bin/env bash
# Checks and measures Pagoda on an NVIDIA GPU, in less than nine minutes and without a network: docs/gpu.md says what.
#
#   benchmarks/gpu.sh [--out FOLDER] [--minutes M] [--only STAGE,…] [--wheels DIR]   results.json and table.txt in FOLDER
#   benchmarks/gpu.sh --tiny                the same on a CPU, tiny: whether this still runs, not how fast anything is
#   benchmarks/gpu.sh --prepare DIR         on a machine with a network: what the GPU's may lack, as wheels for its Python
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD/src:$PWD/benchmarks${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
exec "${PYTHON:-python3}" -m gpu.main "$@"
