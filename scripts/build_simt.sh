#!/usr/bin/env bash
# Builds the kernels for the CPU, under address and undefined-behaviour sanitizers, as the library that `Device::Simt` runs
# in tests. Prints where it is. Does nothing when it is newer than its sources.
#
#     eval "$(scripts/build_simt.sh --env)" && cargo test -p cuzarr-device
#
# sets what the tests need: CUZARR_SIMT_LIBRARY, and the sanitizer preloaded into them (leaks are not looked for: contexts
# are kept for the life of the process on purpose).
set -euo pipefail
cd "$(dirname "$0")/.."

compiler=${CXX:-g++}
out=${CARGO_TARGET_DIR:-target}/simt
library=$(mkdir -p "$out" && cd "$out" && pwd)/libcuzarr_simt.so
kernels=crates/cuzarr-device/kernels
flags=(-std=c++17 -O1 -g -fPIC -DCUZARR_SIMT -ffp-contract=off -fno-strict-aliasing -fvisibility=hidden
    -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
    -Wall -Wextra -Werror -Wno-unknown-pragmas -I"$kernels/include" -I"$kernels/simt" -Icrates/cuzarr/src -Icrates/cuzarr-compute/src)

# One object for each kernel file, made again when the file or a header that it includes is newer (`-MMD` lists them).
stale() {
    local object=$1 input
    [ -f "$object" ] && [ -f "${object%.o}.d" ] && [ ! scripts/build_simt.sh -nt "$object" ] || return 0
    for input in $(sed -e 's/^.*\.o://' -e 's/\\$//' "${object%.o}.d"); do
        [ -f "$input" ] && [ ! "$input" -nt "$object" ] || return 0
    done
    return 1
}
compile() {
    local own=()
    [[ $1 == */runtime.cpp ]] && own=(-O2 -fno-sanitize=all)
    "$compiler" -x c++ "${flags[@]}" "${own[@]}" -MMD -MF "${2%.o}.d" -c "$1" -o "$2.new" -MT "$2" >&2 && mv "$2.new" "$2"
}

mapfile -t sources < <(find crates -name '*.cu' -not -path '*/target/*' | sort)
exec 9> "$library.lock"
flock 9
objects=()
for source in "$kernels/simt/runtime.cpp" "${sources[@]}"; do
    object=$out/$(basename "$source").o
    objects+=("$object")
    stale "$object" || continue
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n; done
    compile "$source" "$object" &
done
while [ "$(jobs -p | wc -l)" -gt 0 ]; do wait -n; done
for object in "${objects[@]}"; do
    if [ ! -f "$library" ] || [ "$object" -nt "$library" ]; then
        "$compiler" -shared -fsanitize=address,undefined "${objects[@]}" -o "$library.new" >&2
        mv "$library.new" "$library"
        break
    fi
done
flock -u 9

if [ "${1:-}" = --env ]; then
    printf 'export CUZARR_SIMT_LIBRARY=%q\n' "$library"
    # For kernels that are generated while a test runs.
    printf 'export CUZARR_SIMT_FLAGS=%q\n' "-std=c++17 -O1 -fPIC -DCUZARR_SIMT -ffp-contract=off -fno-strict-aliasing \
-fvisibility=hidden -fsanitize=address,undefined -fno-sanitize-recover=undefined -w -I$PWD/$kernels/include -I$PWD/$kernels/simt \
-I$PWD/crates/cuzarr/src -I$PWD/crates/cuzarr-compute/src"
    printf 'export LD_PRELOAD=%q\n' "$("$compiler" -print-file-name=libasan.so)"
    printf 'export ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1:handle_segv=1\n'
    printf 'export UBSAN_OPTIONS=print_stacktrace=1\n'
else
    printf '%s\n' "$library"
fi
