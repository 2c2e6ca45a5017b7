#!/usr/bin/env bash
# Every CUDA kernel compiles for compute capability 80 and 90 and keeps its numbers in registers, but for a few that ptxas moves: shown without a
# GPU, by a tool that puts what a program launches through NVRTC and ptxas.
#
#   tests/cuda-check.sh            nothing, if what decides about the kernels is what the record (tests/cuda-check.txt) was made from
#   tests/cuda-check.sh --record   checks, and writes the record
#
# The tool is $CUDA_CHECK, or `shared/cuda-check/run` beside this checkout. Where there is none, a check that is needed fails with CI=true
# and is skipped elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."

# A crate with kernels, and its example that launches them all. Another crate is another line.
programs=(
    'burn-kimi-linear kda_kernels'
    'burn-muonclip max_logit_kernels'
)
record=tests/cuda-check.txt
tool=${CUDA_CHECK:-../shared/cuda-check/run}

sources() {
    local program crate
    for program in "${programs[@]}"; do
        crate=${program% *}
        find "./$crate/src" -name '*.rs' ! -name least_device.rs \( -path '*/cube/*' -o -name plan.rs \)
        echo "./$crate/examples/${program#* }.rs"
    done
    echo ./burn-kimi-kernels/src/cube.rs
}

# The sources of the kernels and of what launches them, and the versions of what makes CUDA of them.
fingerprint() {
    {
        sources | LC_ALL=C sort | xargs sha256sum
        grep -A 1 -E '^name = "(burn-cubecl|cubecl(-[a-z]+)*)"$' Cargo.lock
    } | sha256sum | cut -d ' ' -f 1
}

# Bytes that a kernel may spill. Ptxas leaves some of the kernels 72 registers for the sake of occupancy, and then moves a number or two.
most_spilled=16

# The names of a crate's kernels: of the functions under `#[cube(launch..)]`.
kernels() {
    grep -rhA 1 --include '*.rs' '#\[cube(launch' "$1/src" | sed -nE 's/.*fn ([a-z_0-9]+).*/\1/p' | sort -u
}

# `CRATE sm_CC: N kernels compiled, ..`: what the tool found, once nothing is missing or refused, and little spilled.
check() {
    local crate=$1 binary=$2 cc=$3 names kernel found
    names=$(kernels "$crate" | paste -sd '|')
    CUDA_CHECK_CC=$cc CUDA_CHECK_MATCH="^($names)" "$tool" exec "$binary" cuda >"$out/log" 2>&1 || {
        cat "$out/log" >&2
        return 1
    }
    for kernel in $(kernels "$crate"); do
        grep -q "^$kernel" "$out/log" || {
            echo "$crate: the program launches no kernel $kernel" >&2
            return 1
        }
    done
    local worst
    worst=$(sed -nE 's/.* ([0-9]+) B spilled.*/\1/p' "$out/log" | sort -n | tail -n 1)
    : "${worst:?the tool said of no kernel what it spills}"
    found=$(tail -n 1 "$out/log")
    case $found in
    *' 0 refused by ptxas, '*' with spills') ;;
    *) cat "$out/log" >&2 && return 1 ;;
    esac
    if [ "$worst" -gt $most_spilled ]; then
        cat "$out/log" >&2
        echo "$crate sm_$cc: a kernel spills $worst bytes, at most $most_spilled are allowed" >&2
        return 1
    fi
    echo "$crate sm_$cc: $found, of at most $worst bytes"
}

now=$(fingerprint)
if [ "${1:-}" != --record ] && [ -f $record ] && grep -qx "sources $now" $record; then
    echo "the kernels are those that were checked:"
    cat $record
    exit 0
fi
if [ ! -x "$tool" ]; then
    echo "the kernels changed, and the tool that checks them is not at $tool (CUDA_CHECK names another place)"
    [ "${CI:-}" != true ]
    exit
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target/cuda-check}
echo "sources $now" >"$out/record"
# In one build: alone, each crate would have another set of features, and Burn would be compiled for each.
build=(build --locked --features cuda,cubecl/cuda-cpp)
for program in "${programs[@]}"; do
    build+=(-p "${program% *}" --example "${program#* }")
done
"$tool" build "${build[@]}"
for program in "${programs[@]}"; do
    crate=${program% *} example=${program#* }
    for cc in 80 90; do
        check "$crate" "$CARGO_TARGET_DIR/debug/examples/$example" $cc | tee -a "$out/record"
    done
done
if [ "${1:-}" = --record ]; then
    cp "$out/record" $record
elif ! cmp -s "$out/record" $record; then
    echo "the kernels pass; tests/cuda-check.sh --record writes that down"
fi
