#!/usr/bin/env bash
# Makes .venv, installs pausejax, runs the quickstart study, and says where the pictures are.
# Usage: scripts/quickstart.sh [--cuda|--cuda12] [--out DIR]
#   --cuda     install JAX's CUDA 13 build (a machine with an NVIDIA GPU); --cuda12: for older drivers
#   --out DIR  where the result goes (default out/quickstart)
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")/.."
extras="" out="$PWD/out/quickstart"
while (($#)); do
  case "$1" in
    --cuda) extras="[cuda]" ;;
    --cuda12) extras="[cuda12]" ;;
    --out) out="$(cd "$caller" && realpath -m "${2:?--out needs a folder}")"; shift ;;
    *) echo "usage: scripts/quickstart.sh [--cuda|--cuda12] [--out DIR]" >&2; exit 2 ;;
  esac
  shift
done
source scripts/environment.sh
install_pausejax "$extras"
"$VENV/bin/pausejax" run sweeps/quickstart.toml --out "$out"
