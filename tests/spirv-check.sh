#!/usr/bin/env bash
# What the Vulkan compiler of CubeCL makes of the kernels, against the rules of SPIR-V: shown without a driver that could run it.
#
#   tests/spirv-check.sh     needs gcc, libvulkan-dev, mesa-vulkan-drivers and spirv-tools; not part of .ci/run, for building it takes long
#
# Software drivers crash on some of these shaders while they compile them, and would end the program at the first. So a layer (spirv-check/layer.c) gives
# the driver empty shaders instead, and spirv-val reads what the program dumped of the real ones.
set -euo pipefail
cd "$(dirname "$0")/.."

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
gcc -shared -fPIC -O1 -Wall -o "$out/libempty_shaders.so" tests/spirv-check/layer.c
cat >"$out/layer.json" <<EOF
{
  "file_format_version": "1.0.0",
  "layer": {
    "name": "VK_LAYER_KIMI_empty_shaders", "type": "GLOBAL", "library_path": "$out/libempty_shaders.so",
    "api_version": "1.3.0", "implementation_version": "1", "description": "gives the driver empty compute shaders"
  }
}
EOF

cargo build --locked -p burn-kimi-linear --features vulkan,cubecl/pliron-dump --example kda_kernels
mkdir "$out/kernels"
VK_LAYER_PATH=$out VK_INSTANCE_LAYERS=VK_LAYER_KIMI_empty_shaders CUBECL_WGPU_DEFAULT_DEVICE=Cpu \
    CUBECL_DEBUG_PLIRON=$out/kernels "${CARGO_TARGET_DIR:-target}/debug/examples/kda_kernels" vulkan >"$out/log" 2>&1 || {
    cat "$out/log" >&2
    exit 1
}

# CubeCL 0.11.3 declares shared memory as a pointer to a pointer, in its own kernels too: every kernel that has some is refused for it.
known='reached non-composite type while indexes still remain to be traversed'
valid=0 shared=0 other=0
for module in "$out"/kernels/*/module.spv; do
    if found=$(spirv-val --target-env vulkan1.3 "$module" 2>&1); then
        valid=$((valid + 1))
    elif grep -q "$known" <<<"$found"; then
        shared=$((shared + 1))
    else
        other=$((other + 1))
        echo "$(basename "$(dirname "$module")"): $found" | head -n 2
    fi
done
echo "$((valid + shared + other)) kernels: $valid valid, $shared refused for how shared memory is declared, $other for something else"
[ $((valid + shared)) -gt 0 ] && [ $other -eq 0 ]
