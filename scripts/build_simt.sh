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
    -Wall -Wextra -Werror -Wno-unknown-pragmas -I"$kernels/include" -I"$kernels/simt")

mapfile -t sources < <(find crates -name '*.cu' -not -path '*/target/*' | sort)
newest=$(find scripts/build_simt.sh "$kernels" "${sources[@]}" -type f -printf '%T@\n' | sort -n | tail -1)
if [ ! -f "$library" ] || [ "$(printf '%s\n' "$newest" "$(stat -c %.Y "$library" | tr , .)" | sort -n | head -1)" != "$newest" ]; then
    objects=()
    jobs=()
    for source in "$kernels/simt/runtime.cpp" "${sources[@]}"; do
        object=$out/$(basename "$source").o
        objects+=("$object")
        "$compiler" -x c++ "${flags[@]}" -c "$source" -o "$object" >&2 &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job"; done
    "$compiler" -shared -fsanitize=address,undefined "${objects[@]}" -o "$library.new" >&2
    mv "$library.new" "$library"
fi

if [ "${1:-}" = --env ]; then
    printf 'export CUZARR_SIMT_LIBRARY=%q\n' "$library"
    printf 'export LD_PRELOAD=%q\n' "$("$compiler" -print-file-name=libasan.so)"
    printf 'export ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:allocator_may_return_null=1:handle_segv=1\n'
    printf 'export UBSAN_OPTIONS=print_stacktrace=1\n'
else
    printf '%s\n' "$library"
fi
