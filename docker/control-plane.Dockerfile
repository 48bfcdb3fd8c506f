# Web, worker, beat and the management commands: one image, the command tells them apart.
#   docker build --file docker/control-plane.Dockerfile --tag oolong/control-plane .
FROM node:24-bookworm-slim AS dashboard
WORKDIR /build
COPY webui/package.json webui/package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY webui/ ./
RUN npm run build

FROM python:3.11-slim-bookworm AS packages
RUN python -m venv /app/.venv
COPY constraints/platform.txt /tmp/platform.txt
RUN /app/.venv/bin/pip install --no-cache-dir --no-input --require-hashes --no-deps --requirement /tmp/platform.txt

FROM python:3.11-slim-bookworm
RUN groupadd --gid 10001 oolong \
 && useradd --uid 10001 --gid oolong --home-dir /var/lib/oolong --no-create-home --shell /usr/sbin/nologin oolong \
 && install --directory --owner=oolong --group=oolong --mode=0700 /var/lib/oolong /var/lib/oolong/store
WORKDIR /app
COPY --from=packages /app/.venv /app/.venv
COPY manage.py pyproject.toml README.md LICENSE SECURITY.md CHANGELOG.md ./
COPY docs/ docs/
COPY platform/ platform/
COPY --from=dashboard /build/dist webui/dist
RUN PYTHONPATH=platform .venv/bin/python -m local_stack.sync_client
ENV PATH=/app/.venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/app/platform:/app \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DJANGO_SETTINGS_MODULE=control_plane.settings \
    OOLONG_ENV=production \
    OOLONG_LOG_FORMAT=json \
    OOLONG_DATA_DIR=/var/lib/oolong/store \
    OOLONG_WEBUI_DIST=/app/webui/dist
USER 10001:10001
EXPOSE 8400
VOLUME /var/lib/oolong/store
CMD ["python", "-m", "uvicorn", "control_plane.asgi:application", "--host", "0.0.0.0", "--port", "8400", \
     "--lifespan", "off", "--no-access-log", "--no-proxy-headers", "--timeout-graceful-shutdown", "20"]
