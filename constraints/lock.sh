#!/usr/bin/env bash
# Makes the pinned, hashed lists from the .in files. Needs `uv` on PATH and the public package index.
set -euo pipefail
cd "$(dirname "$0")"

compile() {
    uv pip compile --python-version 3.11 --python-platform x86_64-manylinux_2_34 \
        --no-annotate --no-header --no-emit-index-url --quiet "$@"
}

# torch is a different file on different machines, so it is pinned without a hash, and so are the
# packages that only its CUDA build asks for.
compile node-torch.txt --constraint node-torch-constraints.txt --output-file torch.tmp
{
    echo "# Versions of what torch asks for in its CUDA build; the CPU build needs none of the NVIDIA packages."
    grep -v '^torch==' torch.tmp
} > node-torch-constraints.txt
rm torch.tmp
left_out=(--no-emit-package torch)
while read -r name; do left_out+=(--no-emit-package "$name"); done \
    < <(grep -oE '^(nvidia|cuda)-[a-z0-9-]+' node-torch-constraints.txt)

compile --generate-hashes platform.in --output-file platform.txt
compile --generate-hashes node.in --constraint node-torch.txt --output-file node.txt "${left_out[@]}"
compile --generate-hashes --no-deps node-nodeps.in --output-file node-nodeps.txt
compile --generate-hashes node-cuda.in --constraint node-torch.txt --output-file node-cuda.txt \
    --override node-cuda-overrides.txt --no-emit-package torch
