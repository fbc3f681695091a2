#!/usr/bin/env bash
# Run the kernels under NVIDIA's compute-sanitizer, which ships with the CUDA toolkit: out-of-bounds and
# uninitialised reads, races in shared memory, wrong barriers. Any finding fails.
#
#   benchmarks/gpu/sanitize.sh [python]
set -euo pipefail
cd "$(dirname "$0")/../.."
python="${1:-python}"
command -v compute-sanitizer >/dev/null || {
  echo "compute-sanitizer is not installed; it comes with the CUDA toolkit." >&2
  exit 2
}
for tool in memcheck initcheck racecheck synccheck; do
  echo "== $tool"
  PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool "$tool" --error-exitcode 1 \
    --kernel-name regex=".*(reroute|shares|rewrite|backfill)_kernel.*" \
    "$python" -m pytest -q -p no:cacheprovider -m gpu tests/kernels/test_gpu.py \
    -k "(bits and 128 and float32) or repeats"
done
