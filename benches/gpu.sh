#!/usr/bin/env bash
# The KDA kernels on a CUDA machine: every reference case first, and only if all pass the table of times.
#
#   benches/gpu.sh [ARGS...]   ARGS go to kda-speed, see its --help; DEVICE=wgpu and so on takes another device
#
# The same with small sizes on a machine without a GPU:
#
#   DEVICE=flex benches/gpu.sh --tokens 256 --heads 2
set -euo pipefail
cd "$(dirname "$0")/.."

device=${DEVICE:-cuda}
cargo build --release --locked -p tests --features "$device" --bin parity --bin kda-speed
programs=${CARGO_TARGET_DIR:-target}/release
[ "$device" != cuda ] || nvidia-smi --query-gpu=name,driver_version --format=csv,noheader

"$programs/parity" --device "$device" tests/fixtures >"$programs/parity.log" || {
    grep -v '^ok' "$programs/parity.log"
    exit 1
}
tail -n 1 "$programs/parity.log"
"$programs/kda-speed" --device "$device" "$@"
