# The set-up scripts source this file. It makes an environment, and installs this checkout with exact versions.
# VENV is the folder of the environment (default .venv). PYTHON is the interpreter of a new environment (default
# python3, which must be 3.11 or later).
VENV="${VENV:-.venv}"

install_pausejax() {
  local extras="$1" minor
  [[ -x $VENV/bin/python ]] || {
    echo "making $VENV" >&2
    "${PYTHON:-python3}" -m venv "$VENV"
  }
  minor=$("$VENV/bin/python" -c 'import sys; print(sys.version_info.minor)')
  local constraints="constraints-py3$minor.txt"
  # If a Python has no file of exact versions, it gets the newest versions that the project allows.
  [[ -f $constraints ]] || constraints=/dev/null
  echo "installing pausejax$extras into $VENV. The first time takes some minutes" >&2
  # The build back end is in the environment too, so that a second installation needs no package index.
  pip_install 'setuptools>=83' --constraint "$constraints" &&
    pip_install --no-build-isolation --editable ".$extras" --constraint "$constraints"
}

# Installs XLA's compiler for GPUs, for the tests that count the kernels of a round. Its folder is not in the
# environment, because JAX would then look for CUDA in every process and print warnings.
install_gpu_compiler() {
  local to="$1" version
  [[ $(uname -s) == Linux && ! -d $to/jax_plugins ]] || return 0
  version=$("$VENV/bin/python" -c 'import importlib.metadata as m; print(m.version("jax"))')
  pip_install --no-deps --target "$to" "jax-cuda13-plugin==$version" "jax-cuda13-pjrt==$version" || {
    rm -rf "$to"
    echo "the compiler for GPUs can't be installed: tests that need it are skipped" >&2
  }
}

# If the first environment has a Python older than 3.12, makes a second one, .cache/py312, with the newer JAX and its
# compiler for GPUs. It needs a Python 3.12: PYTHON312, python3.12, or a Python of pyenv.
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
  echo "no Python 3.12 with JAX can be set up: the tests run with one version of JAX" >&2
}

# Runs pip install. Prints its output on stderr, without the lines on packages that are already installed.
pip_install() {
  "$VENV/bin/python" -m pip install --disable-pip-version-check "$@" |
    sed -u '/^Requirement already satisfied/d' >&2
}
