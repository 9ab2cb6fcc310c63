#!/usr/bin/env bash
# Makes .venv, installs pausejax and the libraries of the tests, and runs ruff, mypy and the tests.
# Usage: scripts/test.sh [pytest arguments]; --slow adds the slow tests.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
install_pausejax "[test]"
[[ " $* " != *" --slow "* ]] || { install_gpu_compiler .cache/gpu-plan && install_newer_jax; }
"$VENV/bin/ruff" check .
"$VENV/bin/ruff" format --check .
"$VENV/bin/mypy"
# Without bytecode each process of the tests compiles the package's source again, which takes a second.
unset PYTHONDONTWRITEBYTECODE
# The tests end if a worker is lost, because with a new worker the last tests may wait for ever.
"$VENV/bin/python" -m pytest -n 2 --dist loadfile --max-worker-restart 0 "$@"
