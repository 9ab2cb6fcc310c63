#!/usr/bin/env bash
# Makes .venv, installs pausejax with what the tests need, then runs ruff, mypy and the tests.
# Usage: scripts/test.sh [pytest arguments]; --slow adds the slow tests.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
install_pausejax "[test]"
[[ " $* " != *" --slow "* ]] || { install_gpu_compiler .cache/gpu-plan && install_newer_jax; }
"$VENV/bin/ruff" check .
"$VENV/bin/ruff" format --check .
"$VENV/bin/mypy"
# A worker that is gone ends the tests: with another in its place the last ones may wait for ever.
"$VENV/bin/python" -m pytest -n 2 --dist loadfile --max-worker-restart 0 "$@"
