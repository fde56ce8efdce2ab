#!/usr/bin/env bash
# On a machine with an NVIDIA device: everything that only such a machine can show, by one command.
#
#   benchmarks/gpu_check.sh [CORPUS] [FOLDER]
#
# Makes a virtual environment with uopc and pycuda (a wheel is built where PyPI has none; on a machine
# without a network put wheels into ./wheels first), then: `uopc doctor`, the tests marked gpu, the
# conformance corpus on the device (where CORPUS is given), and benchmarks/gpu.py, with PyTorch where
# the calling Python has it. What was found goes to FOLDER (./gpu-report). About ten minutes.
set -uo pipefail
cd "$(dirname "$0")/.."
corpus=${1:-}
report=${2:-gpu-report}
mkdir -p "$report"
status=0

if [ ! -x "$report/venv/bin/python" ]; then
  python3 -m venv --system-site-packages "$report/venv"
  pip="$report/venv/bin/pip"
  [ -d wheels ] && offline=(--no-index --find-links wheels) || offline=()
  "$pip" install -q "${offline[@]}" -e . pytest hypothesis || exit 1
  if ! "$report/venv/bin/python" -c 'import pycuda' 2>/dev/null; then
    [ -d wheels ] || .ci/build-pycuda-wheel "$report/venv/bin/python" "$report/wheels" || exit 1
    "$pip" install -q --no-index --find-links wheels --find-links "$report/wheels" pycuda || exit 1
  fi
fi
python=$PWD/$report/venv/bin/python
export PYTHONPATH=$PWD

run() { # name, command: what it printed goes to a file, how it ended to the end of this script
  local name=$1
  shift
  echo "+ $*"
  timeout 280 "$@" > "$report/$name.txt" 2>&1
  local code=$?
  tail -n 4 "$report/$name.txt"
  [ $code -eq 0 ] || { echo "$name: exit code $code, see $report/$name.txt"; status=1; }
}

run doctor "$python" -m uopc doctor --device cuda
[ $status -eq 0 ] || exit 1
nvidia-smi > "$report/nvidia-smi.txt" 2>&1
run tests "$python" -m pytest -m gpu tests
run benchmark "$python" benchmarks/gpu.py --out "$report/gpu.json"
if [ -n "$corpus" ]; then
  run conformance "$python" -m tests.conformance "$corpus" --device cuda --jobs 4 --limit 2000
fi
exit $status
