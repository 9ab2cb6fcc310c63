# Sourced by the set-up scripts: makes .venv and installs this checkout with exact versions.
# PYTHON names the interpreter for a new .venv (default python3, 3.11 or later).

install_pausejax() {
  local extras="$1" minor
  [[ -x .venv/bin/python ]] || "${PYTHON:-python3}" -m venv .venv
  minor=$(.venv/bin/python -c 'import sys; print(sys.version_info.minor)')
  local constraints="constraints-py3$minor.txt"
  # A Python that has no file of exact versions gets the newest ones that the project allows.
  [[ -f $constraints ]] || constraints=/dev/null
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".$extras" --constraint "$constraints"
}
