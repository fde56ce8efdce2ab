#!/usr/bin/env bash
# On a machine with an NVIDIA device: everything that only such a machine can show, by one command.
#
#   benchmarks/gpu_check.sh [CORPUS] [FOLDER]
#
# Makes a virtual environment with uopc and pycuda (a wheel is built where PyPI has none; on a machine
# without a network put wheels into ./wheels first), then: `uopc doctor`, the tests marked gpu,
# benchmarks/gpu.py, with PyTorch where the calling Python has it, and the conformance corpus on the
# device (without CORPUS, what this repository carries of it). A step that fails or takes too long is
# reported, and the next one runs. What was found goes to FOLDER (./gpu-report). At most ten minutes
# after the environment.
#
# `python -m tests.standin --rehearse` runs this script without a device (SMALL=1: tiny sizes).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
corpus=${1:-tests/conformance/selection}
report=${2:-gpu-report}
mkdir -p "$report" || exit 1
report=$(cd "$report" && pwd)
python=$report/venv/bin/python
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
small=() cases=2000
[ -z "${SMALL:-}" ] || small=(--small --rounds 2) cases=3
summary=()
status=0

step() { # seconds, name, command: what it printed goes to a file, how it ended to the summary
  local seconds=$1 name=$2 code=0 begin=$SECONDS
  shift 2
  echo "+ $*"
  timeout "$seconds" "$@" > "$report/$name.txt" 2>&1 || code=$?
  tail -n 4 "$report/$name.txt"
  case $code in
    0) summary+=("$name: well, $((SECONDS - begin)) s") ;;
    124) summary+=("$name: NOT DONE after $seconds s, see $report/$name.txt"); status=1 ;;
    *) summary+=("$name: FAILED with $code after $((SECONDS - begin)) s, see $report/$name.txt"); status=1 ;;
  esac
  return "$code"
}

environment() { # a virtual environment with uopc, pycuda and what the tests need
  python3 -m venv --system-site-packages "$report/venv" || return
  local offline=()
  [ ! -d wheels ] || offline=(--no-index --find-links wheels)
  "$python" -m pip install -q "${offline[@]}" -e . pytest hypothesis || return
  ! "$python" -c 'import pycuda' 2>/dev/null || return 0
  [ -d wheels ] || .ci/build-pycuda-wheel "$python" "$report/wheels" || return
  "$python" -m pip install -q --no-index --find-links wheels --find-links "$report/wheels" pycuda
}
export -f environment
export report python

if [ ! -x "$python" ]; then
  step 900 environment bash -c environment || true
  [ -x "$python" ] || python=$(command -v python3)
fi
step 20 nvidia-smi nvidia-smi
step 60 doctor "$python" -m uopc doctor --device cuda
step 150 tests "$python" -m pytest -m gpu tests/test_gpu.py
step 280 benchmark "$python" benchmarks/gpu.py "${small[@]}" --out "$report/gpu.json"
step 100 conformance "$python" -m tests.conformance "$corpus" --device cuda --jobs 4 --limit "$cases"
printf '%s\n' "" "${summary[@]}"
exit $status
