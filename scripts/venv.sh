#!/usr/bin/env bash
# Installs this checkout, editable, with one of its extras into its own virtual environment .venv.
# usage: venv.sh cli|dev    (the interpreter is $PYTHON, else the first python3 that is new enough)
set -euo pipefail
cd "$(dirname "$0")/.."
extra=$1

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "joblock needs Python 3.11 or later; name it: make PYTHON=/path/to/python3.11 ..." >&2
  return 1
}

# Debian takes ensurepip out of its Python (it comes with python3-venv). An environment can be made
# without it, and the pip outside then puts a pip inside.
make_venv() {
  local python
  python=$(find_python)
  if "$python" -c 'import ensurepip' 2>/dev/null; then
    "$python" -m venv --clear .venv
  elif "$python" -m pip --version >/dev/null 2>&1; then
    "$python" -m venv --clear --without-pip .venv
    "$python" -m pip --python .venv/bin/python install --quiet --disable-pip-version-check pip
  else
    echo "$python has no pip; on Debian: apt-get install python3-pip" >&2
    return 1
  fi
}

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  echo "Creating the virtual environment .venv"
  make_venv
fi
echo "Installing joblock[$extra] into .venv"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[$extra]"
touch ".venv/.with-$extra"
