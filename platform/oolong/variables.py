"""The environment variables that a process of Oolong reads, so that a misspelt one is reported and not just ignored."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

PREFIX = "OOLONG_"
TESTS = ("OOLONG_TEST_", "OOLONG_FUZZ_", "OOLONG_BENCH_", "OOLONG_GPU_", "OOLONG_WRITE_")

_NAMES = """
    OOLONG_ENV OOLONG_SERVICE OOLONG_DEBUG OOLONG_LOG_FORMAT OOLONG_HOME OOLONG_PUBLIC_URL
    OOLONG_TRUSTED_ORIGINS OOLONG_TRUSTED_PROXIES OOLONG_STREAMS_USER OOLONG_STREAMS_ADDRESS
    OOLONG_RATE_ADDRESS OOLONG_RATE_NODE OOLONG_RATE_USER OOLONG_DATA_DIR OOLONG_WEBUI_DIST OOLONG_HUB_URL
    OOLONG_SECRETS_KEYS OOLONG_SECRETS_KEYS_FILE OOLONG_METRICS_TOKEN OOLONG_METRICS_TOKEN_FILE
    OOLONG_WEBHOOK_NETWORKS OOLONG_REWARD_ORIGINS OOLONG_PROJECT_FETCHES OOLONG_PROJECT_CHECKS OOLONG_TELEMETRY_DAYS
    OOLONG_FAIR_SHARE_HALF_LIFE_HOURS OOLONG_MIN_RUNTIME_SECONDS OOLONG_CURRENCY
    OOLONG_NODE_LEASE_SECONDS OOLONG_ORPHAN_SECONDS OOLONG_HEARTBEAT_SECONDS OOLONG_OIDC_ISSUER
    OOLONG_OIDC_CLIENT_ID OOLONG_OIDC_CLIENT_SECRET OOLONG_OIDC_CLIENT_SECRET_FILE OOLONG_OIDC_HOSTS OOLONG_OIDC_NAME
    OOLONG_OIDC_ROLES OOLONG_OIDC_ROLE_CLAIM OOLONG_OIDC_SESSION_HOURS OOLONG_OIDC_ROLE_DAYS
    OOLONG_OIDC_LINK_BY_EMAIL OOLONG_WEB_PORT OOLONG_WEB_PROCESSES OOLONG_WORKER_PROCESSES OOLONG_SLOTS
    OOLONG_SLOTS_PER_GPU
    OOLONG_NO_AGENT OOLONG_NODE_PYTHON OOLONG_DEMO_BEGAN OOLONG_SERVER OOLONG_SWITCHES
    OOLONG_JOB OOLONG_SECRETS OOLONG_HOST OOLONG_VERSION OOLONG_EDGE_PREFIX OOLONG_URL OOLONG_TOKEN
    OOLONG_PROFILE
"""
KNOWN = frozenset(_NAMES.split())


def unknown(environ: Mapping[str, str]) -> list[str]:
    """One line for each variable of ours that no process reads, with the nearest name that one does."""
    lines = []
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in KNOWN or name.startswith(TESTS):
            continue
        nearest = difflib.get_close_matches(name, sorted(KNOWN), n=1, cutoff=0.75)
        meant = f"; did you mean {nearest[0]}?" if nearest else ""
        lines.append(f"the environment variable {name} is set, but nothing reads it{meant}")
    return lines


def report_unknown(environ: Mapping[str, str], say: Callable[[str], object] = log.warning) -> None:
    for line in unknown(environ):
        say(line)
