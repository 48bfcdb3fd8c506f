#!/usr/bin/env bash
# Makes the pinned, hashed lists from the .in files. Needs `uv` on PATH and the public package index.
set -euo pipefail
cd "$(dirname "$0")"

compile() {
    uv pip compile --python-version 3.11 --python-platform x86_64-manylinux_2_34 \
        --no-annotate --no-header --no-emit-index-url --quiet "$@"
}

# torch is a different file on different machines: its lists (node-torch-cpu.txt, node-torch-cuda.txt) are kept by hand.
# What only its public build loads is in a list of its own.
left_out=(--no-emit-package torch)
while read -r name; do left_out+=(--no-emit-package "$name"); done \
    < <(grep -oE '^(nvidia|cuda)-[a-z0-9-]+' node-torch-libraries.txt)

compile --generate-hashes platform.in --output-file platform.txt
compile --generate-hashes node.in --constraint node-torch.txt --output-file node.txt "${left_out[@]}"
compile --generate-hashes --no-deps node-nodeps.in --output-file node-nodeps.txt
compile --generate-hashes node-cuda.in --constraint node-torch.txt --output-file node-cuda.txt \
    --override node-cuda-overrides.txt --no-emit-package torch

# The same versions and hashes as in node-cuda.txt, so that both environments of a machine load the same libraries.
names=$(grep -oE '^(nvidia|cuda)-[a-z0-9-]+' node-torch-libraries.txt | paste -sd'|')
{
    grep '^#' node-torch-libraries.txt
    awk -v names="^($names)(\\[[a-z,]*\\])?==" '/^[A-Za-z0-9]/ {take = $0 ~ names} take' node-cuda.txt
} > libraries.tmp
mv libraries.tmp node-torch-libraries.txt
