# A node without a GPU: the agent, and the environment of trainers and engines on the CPU.
#   docker build --file docker/agent-cpu.Dockerfile --tag oolong/agent-cpu .
FROM python:3.11-slim-bookworm
# torch is the public wheel, which computes on a CPU too.
# Engines and trainers compile small kernels at run time.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc g++ libnuma1 procps \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --gid 10001 oolong \
 && useradd --uid 10001 --gid oolong --home-dir /var/lib/oolong-agent --no-create-home oolong \
 && install --directory --owner=oolong --group=oolong --mode=0700 /var/lib/oolong-agent
COPY constraints/ /tmp/constraints/
RUN python -m venv /app/.venv \
 && /app/.venv/bin/pip install --no-cache-dir --no-input --require-hashes --no-deps --requirement /tmp/constraints/platform.txt \
 && python -m venv /opt/node \
 && /opt/node/bin/pip install --no-cache-dir --no-input --require-hashes --no-deps --requirement /tmp/constraints/node.txt \
 && /opt/node/bin/pip install --no-cache-dir --no-input --require-hashes --no-deps --requirement /tmp/constraints/node-torch-cuda.txt \
 && /opt/node/bin/pip install --no-cache-dir --no-input --require-hashes --no-deps --requirement /tmp/constraints/node-torch-libraries.txt \
 && /opt/node/bin/pip install --no-cache-dir --no-input --require-hashes --no-deps --requirement /tmp/constraints/node-nodeps.txt \
 && rm -rf /tmp/constraints
WORKDIR /app
COPY manage.py pyproject.toml README.md LICENSE ./
COPY platform/ platform/
COPY gpu_agents/ gpu_agents/
COPY trainers/ trainers/
RUN PYTHONPATH=platform .venv/bin/python -m local_stack.sync_client
ENV PATH=/app/.venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/app/platform:/app \
    PYTHONUNBUFFERED=1 \
    OMP_NUM_THREADS=1 \
    OOLONG_LOG_FORMAT=json
USER 10001:10001
VOLUME /var/lib/oolong-agent
# OOLONG_SERVER is the https address of the control plane: plain HTTP is refused.
# Process 1 restarts the agent under its running jobs; on SIGTERM it lets the jobs write their checkpoints.
CMD ["sh", "-c", "exec python -m gpu_agents.agent.node_init --data-dir /var/lib/oolong-agent --grace 45 -- python -m gpu_agents.agent run --server \"$OOLONG_SERVER\" --data-dir /var/lib/oolong-agent --join-token-file /run/secrets/join_token --node-python /opt/node/bin/python --device cpu"]
