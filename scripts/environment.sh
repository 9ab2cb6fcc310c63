# Sourced by the set-up scripts: makes .venv and installs this checkout with exact versions.
# PYTHON names the interpreter for a new .venv (default python3, 3.11 or later).

install_pausejax() {
  local extras="$1" minor
  [[ -x .venv/bin/python ]] || {
    echo "making .venv" >&2
    "${PYTHON:-python3}" -m venv .venv
  }
  minor=$(.venv/bin/python -c 'import sys; print(sys.version_info.minor)')
  local constraints="constraints-py3$minor.txt"
  # A Python that has no file of exact versions gets the newest ones that the project allows.
  [[ -f $constraints ]] || constraints=/dev/null
  echo "installing pausejax$extras into .venv; the first time takes some minutes" >&2
  # The build back end lies in .venv too, so that a second time asks no package index for anything.
  pip_install 'setuptools>=77' --constraint "$constraints"
  pip_install --no-build-isolation --editable ".$extras" --constraint "$constraints"
}

# XLA's compiler for GPUs, for the tests that count what it makes of a round. Beside .venv and not in it: there
# JAX would look for CUDA in every process, and say at length that it found none.
install_gpu_compiler() {
  local to=.cache/gpu-plan minor version
  [[ $(uname -s) == Linux && ! -d $to/jax_plugins ]] || return 0
  version=$(.venv/bin/python -c 'import importlib.metadata as m; print(m.version("jax"))')
  pip_install --no-deps --target "$to" "jax-cuda13-plugin==$version" "jax-cuda13-pjrt==$version" || {
    rm -rf "$to"
    echo "no compiler for GPUs: the tests that need it are skipped" >&2
  }
}

# The newer JAX with its compiler for GPUs, for the same tests. It needs a Python 3.12: PYTHON312, python3.12, or
# one of pyenv's.
install_newer_jax() {
  local to=.cache/py312 python
  [[ $(uname -s) == Linux && ! -d $to/lib/python3.12/site-packages/pausejax ]] || return 0
  for python in "${PYTHON312:-python3.12}" "$HOME"/.pyenv/versions/3.12.*/bin/python; do
    if "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then
      "$python" -m venv "$to" && .venv/bin/python -m pip --python "$to/bin/python" install -q \
        --disable-pip-version-check --constraint constraints-py312.txt '.[gpu-plan]' && return 0
      rm -rf "$to"
    fi
  done
  echo "no Python 3.12, or no JAX for it: the GPU programs are tested with one version of JAX" >&2
}

# pip's own account without the lines on what is there already, on stderr.
pip_install() {
  .venv/bin/python -m pip install --disable-pip-version-check "$@" |
    sed -u '/^Requirement already satisfied/d' >&2
}
