#!/usr/bin/env bash
# What is too long for every change. Times are of two cores.
#
#   tests/full.sh parity-wgpu   about 12 minutes cold: every fixture on software Vulkan (or the GPU that wgpu finds)
#   tests/full.sh train         about 10 minutes: the default training run, and what it must reach
#   tests/full.sh benches       about 10 minutes: every criterion benchmark
#   tests/full.sh               all of them
set -euo pipefail
cd "$(dirname "$0")/.."

parity_wgpu() {
    cargo run --release -p tests --features wgpu --bin parity -- --device wgpu tests/fixtures
}

train() {
    local out
    out=$(mktemp -d)
    cargo run --release -p examples --bin train-lm -- --out "$out/run" | tee "$out/log"
    tests/check_training.py "$out/run" "$out/log" --below-bigram 0.3
}

benches() { cargo bench --workspace --benches; }

case "${1:-all}" in
parity-wgpu) parity_wgpu ;;
train) train ;;
benches) benches ;;
all) parity_wgpu && train && benches ;;
*) sed -n '2,8p' "$0" && exit 2 ;;
esac
