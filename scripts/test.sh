#!/usr/bin/env bash
# Makes .venv, installs pausejax with what the tests need, then runs ruff, mypy and the tests.
# Usage: scripts/test.sh [pytest arguments]; --slow adds the slow tests.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
install_pausejax "[test]"
[[ " $* " != *" --slow "* ]] || { install_gpu_compiler && install_newer_jax; }
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
# A worker that is gone ends the tests: with another in its place the last ones may wait for ever.
.venv/bin/python -m pytest -n 2 --dist loadfile --max-worker-restart 0 "$@"
