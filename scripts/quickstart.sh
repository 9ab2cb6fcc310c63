#!/usr/bin/env bash
# Makes .venv, installs pausejax, runs the quickstart study, and says where the pictures are.
# Usage: scripts/quickstart.sh [--cuda] [--out DIR]
#   --cuda     install JAX's CUDA build (a machine with an NVIDIA GPU)
#   --out DIR  where the result goes (default out/quickstart)
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."
extras="" out="$PWD/out/quickstart"
while (($#)); do
  case "$1" in
    --cuda) extras="[cuda]" ;;
    --out) out="$(cd "$caller" && realpath -m "${2:?--out needs a folder}")"; shift ;;
    *) echo "usage: scripts/quickstart.sh [--cuda] [--out DIR]" >&2; exit 2 ;;
  esac
  shift
done
source scripts/environment.sh
install_pausejax "$extras"
.venv/bin/pausejax run sweeps/quickstart.toml --out "$out"
