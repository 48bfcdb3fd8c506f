# A node with NVIDIA GPUs: the agent, and the environment of trainers and engines with CUDA.
#   docker build --file docker/agent-cuda.Dockerfile --tag oolong/agent-cuda .
# Run it with the NVIDIA container runtime. The CUDA libraries come with the Python packages; the driver is the host's.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04
# Kernels are compiled at run time, so the compiler of CUDA stays in the image. Oolong runs on Python 3.11.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends software-properties-common \
 && add-apt-repository --yes ppa:deadsnakes/ppa \
 && apt-get update \
 && apt-get install --yes --no-install-recommends python3.11 python3.11-venv python3.11-dev gcc g++ libnuma1 procps \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 oolong \
 && useradd --uid 10001 --gid oolong --home-dir /var/lib/oolong-agent --no-create-home oolong \
 && install --directory --owner=oolong --group=oolong --mode=0700 /var/lib/oolong-agent
COPY constraints/ /tmp/constraints/
RUN python3.11 -m venv /app/.venv \
 && /app/.venv/bin/pip install --no-cache-dir --no-input --require-hashes --no-deps --requirement /tmp/constraints/platform.txt \
 && python3.11 -m venv /opt/node \
 && /opt/node/bin/pip install --no-cache-dir --no-input --require-hashes --no-deps --requirement /tmp/constraints/node-cuda.txt \
 && /opt/node/bin/pip install --no-cache-dir --no-input --require-hashes --no-deps --requirement /tmp/constraints/node-torch-cuda.txt \
 && rm -rf /tmp/constraints
WORKDIR /app
COPY manage.py pyproject.toml README.md LICENSE ./
COPY platform/ platform/
COPY gpu_agents/ gpu_agents/
COPY trainers/ trainers/
RUN PYTHONPATH=platform .venv/bin/python -m local_stack.sync_client
ENV PATH=/app/.venv/bin:/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/app/platform:/app \
    PYTHONUNBUFFERED=1 \
    OMP_NUM_THREADS=1 \
    OOLONG_LOG_FORMAT=json \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
VOLUME /var/lib/oolong-agent
# Process 1 restarts the agent under its running jobs; on SIGTERM it lets the jobs write their checkpoints.
CMD ["sh", "-c", "exec python -m gpu_agents.agent.node_init --data-dir /var/lib/oolong-agent --grace 45 -- python -m gpu_agents.agent run --server \"$OOLONG_SERVER\" --data-dir /var/lib/oolong-agent --join-token-file /run/secrets/join_token --node-python /opt/node/bin/python --device cuda"]
