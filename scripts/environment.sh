# Sourced by the set-up scripts: makes an environment and installs this checkout with exact versions.
# VENV names the environment (default .venv), PYTHON the interpreter of a new one (default python3, 3.11 or later).
VENV="${VENV:-.venv}"

install_pausejax() {
  local extras="$1" minor
  [[ -x $VENV/bin/python ]] || {
    echo "making $VENV" >&2
    "${PYTHON:-python3}" -m venv "$VENV"
  }
  minor=$("$VENV/bin/python" -c 'import sys; print(sys.version_info.minor)')
  local constraints="constraints-py3$minor.txt"
  # A Python that has no file of exact versions gets the newest ones that the project allows.
  [[ -f $constraints ]] || constraints=/dev/null
  echo "installing pausejax$extras into $VENV; the first time takes some minutes" >&2
  # The build back end lies in the environment too, so that a second time asks no package index for anything.
  pip_install 'setuptools>=83' --constraint "$constraints" &&
    pip_install --no-build-isolation --editable ".$extras" --constraint "$constraints"
}

# XLA's compiler for GPUs, for the tests that count what it makes of a round. Beside the environment and not in it:
# there JAX would look for CUDA in every process, and say at length that it found none.
install_gpu_compiler() {
  local to="$1" version
  [[ $(uname -s) == Linux && ! -d $to/jax_plugins ]] || return 0
  version=$("$VENV/bin/python" -c 'import importlib.metadata as m; print(m.version("jax"))')
  pip_install --no-deps --target "$to" "jax-cuda13-plugin==$version" "jax-cuda13-pjrt==$version" || {
    rm -rf "$to"
    echo "no compiler for GPUs: the tests that need it are skipped" >&2
  }
}

# A second environment, .cache/py312, with the newer JAX and its compiler for GPUs, where the first has an older
# Python. It needs a Python 3.12: PYTHON312, python3.12, or one of pyenv's.
install_newer_jax() {
  local newer=.cache/py312 python
  is_312() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; }
  [[ $(uname -s) == Linux && $VENV != "$newer" ]] && ! is_312 "$VENV/bin/python" || return 0
  for python in "$newer/bin/python" "${PYTHON312:-python3.12}" "$HOME"/.pyenv/versions/3.12.*/bin/python; do
    if is_312 "$python"; then
      VENV=$newer PYTHON=$python install_pausejax "[test]" &&
        VENV=$newer install_gpu_compiler "$newer/gpu-plan" && return 0
      rm -rf "$newer"
    fi
  done
  echo "no Python 3.12, or no JAX for it: the tests have one version of JAX" >&2
}

# pip's own account without the lines on what is there already, on stderr.
pip_install() {
  "$VENV/bin/python" -m pip install --disable-pip-version-check "$@" |
    sed -u '/^Requirement already satisfied/d' >&2
}
