#!/usr/bin/env bash
# Makes the virtual environment, installs the pinned packages and builds the native kernels: `scripts/setup.sh .venv`.
# Says in one line what is missing. Needs the network only for packages that are not installed yet.
set -euo pipefail
venv=${1:?the folder of the virtual environment}
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 CMAKE_BUILD_PARALLEL_LEVEL=2

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }
recent() { "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

compiler=
for candidate in ${CXX:-} g++ c++ clang++; do
    if command -v "$candidate" >/dev/null; then compiler=$candidate; break; fi
done
[ -n "$compiler" ] || fail "a C++ compiler is missing (g++, or set CXX); the native kernels are built with it"

if ! recent "$venv/bin/python" || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python=
    for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3 python; do
        if recent "$candidate"; then python=$candidate; break; fi
    done
    [ -n "$python" ] || fail "Python >= 3.11 with its venv module is missing (or set PYTHON to one)"
    "$python" -m venv --clear "$venv"
fi
headers=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
[ -f "$headers/Python.h" ] || fail "the Python headers are missing ($headers/Python.h; usually a package named python3-dev)"

echo "setup: installing the pinned packages and building the kernels with $compiler (minutes the first time)"
pip=("$venv/bin/python" -m pip install -qq --constraint constraints.txt)
"${pip[@]}" scikit-build-core nanobind cmake ninja || fail "the build tools could not be installed (the first set-up needs the network)"
"${pip[@]}" --no-build-isolation --editable '.[cpu,dev]' || fail "Geartrain could not be installed (the first set-up needs the network)"
