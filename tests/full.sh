#!/usr/bin/env bash
# What is too long for every change; each part says at its end how long it took. CI runs the two for wgpu on software Vulkan; here they take
# the device that wgpu finds.
#
#   tests/full.sh parity-wgpu   every fixture on software Vulkan, or on the GPU that wgpu finds
#   tests/full.sh kernels-wgpu  the tests of burn-kimi-linear with its kernels on the same
#   tests/full.sh train         the default training run, and what it must reach
#   tests/full.sh benches       every criterion benchmark
#   tests/full.sh spirv         what the Vulkan compiler makes of the KDA kernels, against the rules of SPIR-V; needs gcc, libvulkan-dev and spirv-tools
#   tests/full.sh               all of them
#
# Most of parity-wgpu is compiling Burn's GPU backends. Software Vulkan needs the Debian packages mesa-vulkan-drivers and libvulkan1.
set -euo pipefail
cd "$(dirname "$0")/.."

parity_wgpu() {
    cargo run --release -p tests --features wgpu --bin parity -- --device wgpu tests/fixtures
}

kernels_wgpu() { cargo test -p burn-kimi-linear --features wgpu --test kimi_linear; }

train() {
    local out
    out=$(mktemp -d)
    cargo run --release -p examples --bin train-lm -- --out "$out/run" | tee "$out/log"
    tests/check_training.py "$out/run" "$out/log" --below-bigram 0.3
}

benches() { cargo bench --workspace --benches; }

spirv() { tests/spirv-check.sh; }

timed() {
    local start=$SECONDS
    "$1"
    printf '%s took %d s\n' "$1" $((SECONDS - start))
}

case "${1:-all}" in
parity-wgpu) timed parity_wgpu ;;
kernels-wgpu) timed kernels_wgpu ;;
train) timed train ;;
benches) timed benches ;;
spirv) timed spirv ;;
all)
    timed parity_wgpu
    timed kernels_wgpu
    timed train
    timed benches
    timed spirv
    ;;
*) sed -n '2,12p' "$0" && exit 2 ;;
esac
