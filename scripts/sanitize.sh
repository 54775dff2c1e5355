#!/usr/bin/env bash
# Runs the native kernels under the address, undefined and thread sanitizers, and a long fuzz of the wire's decoders:
# `scripts/sanitize.sh .venv [SEED [WINDOWS]]`. Says what it ran; the first fault ends it.
set -euo pipefail
venv=${1:?the folder of the virtual environment}
seed=${2:-1} windows=${3:-20}
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$(cd "$venv/bin" && pwd)
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-2}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() { printf 'sanitize: %s\n' "$*" >&2; exit 1; }

compiler=
for candidate in ${CXX:-} g++ c++ clang++; do
    if command -v "$candidate" >/dev/null; then compiler=$candidate; break; fi
done
[ -n "$compiler" ] || fail "a C++ compiler is missing (g++, or set CXX)"

# The thread sanitizer cannot live with every random layout of the address space.
fixed_layout=
if setarch "$(uname -m)" -R true 2>/dev/null; then fixed_layout="setarch $(uname -m) -R"; fi

need_sanitizer() {
    echo 'int main() { return 0; }' >"$scratch/probe.cpp"
    "$compiler" "-fsanitize=$1" "$scratch/probe.cpp" -o "$scratch/probe" 2>"$scratch/why" ||
        fail "$compiler has no $1 sanitizer: $(head -n 1 "$scratch/why")"
    $fixed_layout "$scratch/probe" 2>"$scratch/why" ||
        fail "what $compiler builds with its $1 sanitizer does not run here: $(head -n 1 "$scratch/why")"
}

stress() {
    local sanitizers=$1 build=$root/build/sanitize/$1 began=$SECONDS
    echo "sanitize: building the kernels with $compiler -fsanitize=$sanitizers"
    "$bin/cmake" -G Ninja -S "$root/kernels/native/stress" -B "$build" -DCMAKE_MAKE_PROGRAM="$bin/ninja" \
        -DCMAKE_CXX_COMPILER="$compiler" -DSANITIZE="$sanitizers" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; fail "cmake"; }
    "$bin/cmake" --build "$build" --parallel "$jobs" >"$scratch/log" 2>&1 || { cat "$scratch/log" >&2; fail "the build with $sanitizers"; }
    echo "sanitize: $sanitizers, built in $((SECONDS - began)) s; stress with seed $seed:"
    began=$SECONDS
    ASAN_OPTIONS=detect_leaks=1:strict_init_order=1 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
        TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 \
        $fixed_layout "$build/stress" "$seed" "$windows" || fail "$sanitizers found a fault (seed $seed, $windows windows)"
    echo "sanitize: $sanitizers: nothing found in $((SECONDS - began)) s"
}

for sanitizer in address undefined thread; do need_sanitizer "$sanitizer"; done
stress address,undefined
stress thread

echo "sanitize: fuzzing the wire's decoders, the server and its files"
began=$SECONDS
cd "$root"
"$bin/python" -m pytest -q -p no:cacheprovider --hypothesis-profile=long tests/unit/wire -k fuzz ||
    fail "the fuzz found a fault"
echo "sanitize: fuzz: nothing found in $((SECONDS - began)) s"
