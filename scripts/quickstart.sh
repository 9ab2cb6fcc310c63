#!/usr/bin/env bash
# Makes .venv, installs pausejax, runs the quickstart study, and prints the folder of the pictures.
# Usage: scripts/quickstart.sh [--cuda|--cuda12] [--out DIR]
#   --cuda     install JAX for NVIDIA GPUs, with CUDA 13
#   --cuda12   install JAX for NVIDIA GPUs, with CUDA 12 for older drivers
#   --out DIR  folder of the result (default out/quickstart)
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
