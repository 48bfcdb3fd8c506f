"""Every call of the API as plain data, a module for each noun: `calls.runs.stop(run_id)` says what to send.

Both clients send the same ones. A test holds each against the API's schema.
"""

from oolong.client.calls import (
    account,
    audit,
    checkpoints,
    datasets,
    functions,
    invitations,
    members,
    models,
    playgrounds,
    pool,
    project,
    reward_tests,
    runs,
    secrets,
    service_accounts,
    sessions,
    streams,
    teams,
    telemetry,
    tokens,
    uploads,
    webhooks,
)
from oolong.client.calls.call import Call

__all__ = [
    "Call",
    "account",
    "audit",
    "checkpoints",
    "datasets",
    "functions",
    "invitations",
    "members",
    "models",
    "playgrounds",
    "pool",
    "project",
    "reward_tests",
    "runs",
    "secrets",
    "service_accounts",
    "sessions",
    "streams",
    "teams",
    "telemetry",
    "tokens",
    "uploads",
    "webhooks",
]
