"""What every route needs: the expectation that the code is held against. A new route is one line here.

The need of a route stands on its view (`scopes`, `permission_classes`); this table says it a second time, in the
words of somebody who reads only this page, and a route that it does not name fails the build. A path with a
`{placeholder}` of a new kind also needs an object in `objects.py`, so that a foreign one can be asked for. A route
that answers 404 before it looks for its object because the body is wrong needs a body in BODIES.
"""

from __future__ import annotations

from typing import Any

OPEN = "open"  # no credential needed
KNOWN = "known"  # any live credential of a user; the handler asks for more where it must
NODE = "node"  # a node credential

ROUTES = {
    # --- outside /api/v1
    "ANY /login/oidc": OPEN,
    "ANY /login/oidc/callback": OPEN,  # state and code are its credential
    "ANY /login/{token}": OPEN,  # the link is its credential
    "ANY /{path}": OPEN,  # the dashboard's pages: static files
    "ANY /docs": OPEN,
    "ANY /docs/{page}": OPEN,
    "ANY /healthz": OPEN,
    "ANY /readyz": OPEN,  # says which part fails, nothing of how it is reached
    "ANY /metrics": OPEN,  # to who sends OOLONG_METRICS_TOKEN: see operation/test_health.py
    "GET /openapi.json": OPEN,
    "GET /docs": OPEN,
    "GET /client": OPEN,  # the package of the SDK and the command
    "GET /client/requirements.txt": OPEN,
    "GET /client/{filename}": OPEN,
    # --- accounts
    "GET /health": OPEN,
    "GET /me": KNOWN,
    "POST /session": OPEN,
    "DELETE /session": OPEN,
    "GET /session/csrf": OPEN,
    "GET /session/methods": OPEN,
    "GET /tokens": "tokens:read",
    "POST /tokens": "tokens:write",
    "DELETE /tokens/{token_id}": "tokens:write",
    "POST /tokens/{token_id}/rotate": "tokens:write",
    "PUT /session/project": KNOWN,
    "GET /teams": "project:read",
    "POST /teams": "installation:admin",
    "GET /team": "project:read",
    "PATCH /team": "team:admin",
    "GET /team/members": "members:read",
    "POST /team/members": "team:admin",
    "PATCH /team/members/{user_id}": "team:admin",
    "DELETE /team/members/{user_id}": "members:write",  # oneself; others need team:admin
    "GET /projects": "project:read",
    "POST /projects": "team:admin",
    "GET /members": "members:read",
    "POST /members": "members:admin",
    "PATCH /members/{user_id}": "members:admin",
    "DELETE /members/{user_id}": "members:write",  # oneself; others need members:admin
    "GET /invitations": "members:admin",
    "POST /invitations": "members:admin",
    "DELETE /invitations/{invitation_id}": "members:admin",
    "POST /invitations/lookup": OPEN,  # the secret in the body is its credential
    "POST /invitations/accept": OPEN,
    "GET /service-accounts": "members:read",
    "POST /service-accounts": "members:admin",
    "PATCH /service-accounts/{service_account_id}": "members:admin",
    "DELETE /service-accounts/{service_account_id}": "members:admin",
    "POST /service-accounts/{service_account_id}/tokens": "members:admin",
    "GET /audit": "audit:read",
    "GET /audit/chain": "audit:read",
    "GET /audit/export": "audit:read",
    "POST /stream-tickets": KNOWN,
    "GET /secrets": "secrets:read",
    "POST /secrets": "secrets:write",
    "DELETE /secrets/{secret_name}": "secrets:write",
    "GET /project": "project:read",
    "PATCH /project": "project:admin",
    "GET /project/events": "project:read",
    # --- webhooks
    "GET /webhooks": "webhooks:admin",
    "POST /webhooks": "webhooks:admin",
    "GET /webhooks/{webhook_id}": "webhooks:admin",
    "PATCH /webhooks/{webhook_id}": "webhooks:admin",
    "DELETE /webhooks/{webhook_id}": "webhooks:admin",
    "POST /webhooks/{webhook_id}/rotate-secret": "webhooks:admin",
    "POST /webhooks/{webhook_id}/test": "webhooks:admin",
    "GET /webhooks/{webhook_id}/deliveries": "webhooks:admin",
    "GET /webhook-deliveries/{delivery_id}": "webhooks:admin",
    "POST /webhook-deliveries/{delivery_id}/redeliver": "webhooks:admin",
    # --- catalog
    "POST /uploads": KNOWN,  # by purpose, as the four below
    "POST /uploads/fetch": "datasets:write",
    "POST /upload-sessions": KNOWN,
    "GET /upload-sessions/{session_id}": KNOWN,
    "DELETE /upload-sessions/{session_id}": KNOWN,
    "PUT /upload-sessions/{session_id}/parts/{number}": KNOWN,
    "POST /upload-sessions/{session_id}/complete": KNOWN,
    "GET /datasets": "datasets:read",
    "POST /datasets": "datasets:write",
    "GET /datasets/{dataset_id}": "datasets:read",
    "GET /datasets/{dataset_id}/aliases": "datasets:read",
    "PUT /datasets/{dataset_id}/aliases/{dataset_alias}": "datasets:write",
    "DELETE /datasets/{dataset_id}/aliases/{dataset_alias}": "datasets:write",
    "POST /datasets/{dataset_id}/versions": "datasets:write",
    "GET /dataset-validations": "datasets:read",
    "POST /dataset-validations": "datasets:write",
    "GET /dataset-validations/{validation_id}": "datasets:read",
    "GET /dataset-validations/{validation_id}/report": "datasets:read",
    "GET /dataset-versions/resolve": "datasets:read",
    "GET /dataset-versions/{version_id}": "datasets:read",
    "POST /dataset-versions/{version_id}/split": "datasets:write",
    "POST /datasets/{dataset_id}/merge": "datasets:write",
    "GET /dataset-versions/{version_id}/diff": "datasets:read",
    "GET /dataset-versions/{version_id}/leakage": "datasets:read",
    "GET /dataset-versions/{version_id}/rows": "datasets:read",
    "GET /dataset-versions/{version_id}/statistics": "datasets:read",
    "POST /dataset-versions/{version_id}/statistics": "datasets:write",
    "GET /models": "models:read",
    "POST /models": "models:write",
    "GET /models/resolve": "models:read",
    "GET /models/{model_id}": "models:read",
    "DELETE /models/{model_id}": "models:write",
    "GET /model-imports": "models:read",
    "POST /model-imports": "models:write",
    "GET /model-imports/{import_id}": "models:read",
    "DELETE /model-imports/{import_id}": "models:write",
    "GET /functions": "functions:read",
    "POST /functions": "functions:write",
    "GET /functions/{function_id}": "functions:read",
    "PATCH /functions/{function_id}": "functions:write",
    "DELETE /functions/{function_id}": "functions:write",
    "GET /function-versions/resolve": "functions:read",
    "GET /function-versions/{function_version_id}/source": "functions:read",
    "GET /checkpoints": "checkpoints:read",
    "GET /checkpoints/resolve": "checkpoints:read",
    "GET /checkpoints/{checkpoint_id}": "checkpoints:read",
    "PATCH /checkpoints/{checkpoint_id}": "checkpoints:write",
    "GET /checkpoints/{checkpoint_id}/files": "checkpoints:read",
    "GET /checkpoints/{checkpoint_id}/lineage": "checkpoints:read",
    "GET /checkpoints/{checkpoint_id}/card": "checkpoints:read",
    "GET /checkpoints/{checkpoint_id}/download": "checkpoints:read",
    "GET /checkpoints/{checkpoint_id}/merged": "checkpoints:read",
    "POST /checkpoints/{checkpoint_id}/links": "checkpoints:read",
    "GET /checkpoint-downloads/{link}": OPEN,  # the signature is its credential
    "GET /checkpoint-downloads/{link}/files": OPEN,
    "GET /checkpoint-aliases": "checkpoints:read",
    "GET /checkpoint-aliases/{alias}": "checkpoints:read",
    "PUT /checkpoint-aliases/{alias}": "checkpoints:write",
    "DELETE /checkpoint-aliases/{alias}": "checkpoints:write",
    "GET /playgrounds": "runs:read",
    "POST /playgrounds": "runs:write",
    "GET /playgrounds/{playground_id}": "runs:read",
    "DELETE /playgrounds/{playground_id}": "runs:write",
    "GET /reward-tests": "runs:read",
    "POST /reward-tests": "runs:write",
    "GET /reward-tests/{reward_test_id}": "runs:read",
    "GET /checkpoint-gates": "checkpoints:read",
    "POST /checkpoint-gates": "checkpoints:admin",
    "GET /checkpoint-gates/{alias}": "checkpoints:read",
    "DELETE /checkpoint-gates/{alias}": "checkpoints:admin",
    "GET /checkpoint-gates/{alias}/result": "checkpoints:read",
    "POST /checkpoint-gates/{alias}/runs": "runs:write",
    "GET /checkpoint-retention": "checkpoints:read",
    "PUT /checkpoint-retention": "checkpoints:admin",
    "POST /checkpoint-retention/plan": "checkpoints:read",
    "POST /checkpoint-retention/apply": "checkpoints:admin",
    # --- fleet
    "GET /pool": "pool:read",
    "GET /pool/usage": "pool:read",
    "GET /pool/usage/series": "pool:read",
    "POST /pool/nodes/{node_id}/cordon": "pool:admin",
    "POST /pool/nodes/{node_id}/uncordon": "pool:admin",
    "POST /pool/nodes/{node_id}/drain": "pool:admin",
    "POST /pool/nodes/{node_id}/revoke": "pool:admin",
    "POST /pool/nodes/{node_id}/quarantine": "pool:admin",
    "POST /pool/nodes/{node_id}/release": "pool:admin",
    "GET /pools/{pool_name}/reservations": "pool:read",
    "POST /pools/{pool_name}/reservations": "pool:admin",
    "DELETE /pools/{pool_name}/reservations/{reservation_id}": "pool:admin",
    "GET /pools/{pool_name}/maintenance": "pool:read",
    "POST /pools/{pool_name}/maintenance": "pool:admin",
    "DELETE /pools/{pool_name}/maintenance/{window_id}": "pool:admin",
    "GET /pools": "pool:read",
    "POST /pools": "installation:admin",
    "PATCH /pools/{pool_name}": "installation:admin",
    "DELETE /pools/{pool_name}": "installation:admin",
    "GET /pools/{pool_name}/teams": "pool:admin",
    "POST /pools/{pool_name}/teams": "installation:admin",
    "DELETE /pools/{pool_name}/teams/{team_id}": "installation:admin",
    "PUT /pools/{pool_name}/teams/{team_id}/quota": "pool:admin",
    "GET /pools/{pool_name}/teams/{team_id}/projects": "pool:admin",
    "PUT /pools/{pool_name}/teams/{team_id}/projects/{project_id}/quota": "pool:admin",
    "GET /pools/{pool_name}/prices": "pool:read",
    "PUT /pools/{pool_name}/prices": "pool:admin",
    "GET /pools/{pool_name}/budgets": "pool:read",
    "PUT /pools/{pool_name}/teams/{team_id}/budget": "pool:admin",
    "PUT /pools/{pool_name}/projects/{project_id}/budget": "team:admin",
    "GET /pools/{pool_name}/admins": "pool:admin",
    "POST /pools/{pool_name}/admins": "installation:admin",
    "DELETE /pools/{pool_name}/admins/{user_id}": "installation:admin",
    "POST /pools/{pool_name}/join-tokens": "pool:admin",
    # --- runs
    "GET /presets": "runs:read",
    "GET /run-templates": "runs:read",
    "POST /run-templates": "runs:write",
    "GET /run-templates/{template_id}": "runs:read",
    "DELETE /run-templates/{template_id}": "runs:write",
    "POST /run-templates/{template_id}/versions": "runs:write",
    "GET /sweeps": "runs:read",
    "POST /sweeps": "runs:write",
    "GET /sweeps/{sweep_id}": "runs:read",
    "GET /sweeps/{sweep_id}/trials": "runs:read",
    "POST /sweeps/{sweep_id}/pause": "runs:write",
    "POST /sweeps/{sweep_id}/resume": "runs:write",
    "POST /sweeps/{sweep_id}/cancel": "runs:write",
    "GET /saved-views": "runs:read",
    "POST /saved-views": "runs:read",  # one's own
    "GET /saved-views/{view_id}": "runs:read",
    "PATCH /saved-views/{view_id}": "runs:read",
    "DELETE /saved-views/{view_id}": "runs:read",
    "GET /runs": "runs:read",
    "POST /runs": "runs:write",
    "POST /runs/validate": "runs:read",
    "POST /runs/plan": "runs:read",
    "POST /runs/simulate": "runs:read",
    "POST /runs/what-if": "runs:read",
    "GET /runs/{run_id}": "runs:read",
    "PATCH /runs/{run_id}": "runs:write",
    "DELETE /runs/{run_id}": "runs:write",
    "POST /runs/{run_id}/submit": "runs:write",
    "POST /runs/{run_id}/force-stop": "runs:admin",
    "POST /runs/{run_id}/pause": "runs:write",
    "POST /runs/{run_id}/resume": "runs:write",
    "POST /runs/{run_id}/runtime": "runs:write",
    "POST /runs/{run_id}/clone": "runs:write",
    "POST /runs/{run_id}/retry": "runs:write",
    "POST /runs/{run_id}/stop": "runs:write",
    "POST /runs/{run_id}/cancel": "runs:write",
    "GET /runs/{run_id}/events": "runs:read",
    "GET /runs/{run_id}/attempts": "runs:read",
    "GET /runs/{run_id}/wait": "runs:read",
    "POST /runs/{run_id}/what-if": "runs:read",
    "GET /runs/{run_id}/jobs": "runs:read",
    # --- telemetry
    "GET /runs/sparklines": "runs:read",
    "GET /runs/{run_id}/metrics": "runs:read",
    "GET /runs/{run_id}/metric-names": "runs:read",
    "GET /runs/{run_id}/histograms": "runs:read",
    "GET /runs/{run_id}/state": "runs:read",
    "GET /runs/{run_id}/state/{name}": "runs:read",
    "GET /runs/{run_id}/trajectories": "runs:read",
    "GET /runs/{run_id}/trajectories/{trajectory_id}": "runs:read",
    "GET /runs/{run_id}/timeline": "runs:read",
    "GET /runs/{run_id}/alerts": "runs:read",
    "GET /runs/{run_id}/logs": "runs:read",
    "GET /runs/{run_id}/logs/search": "runs:read",
    "GET /runs/{run_id}/logs/download": "runs:read",
    "GET /metrics/definitions": KNOWN,
    "ANY /stream": KNOWN,  # by topic: TOPICS
    # --- relay
    "ANY /runs/{run_id}/playground": "runs:write",
    "ANY /runs/{run_id}/playground/{path}": "runs:write",
    "ANY /runs/{run_id}/sessions": "sessions:write",
    "ANY /runs/{run_id}/sessions/{path}": "sessions:write",
    # --- agents
    "POST /agent/enroll": OPEN,  # the join token is its credential
    "POST /agent/heartbeat": NODE,
    "POST /agent/leave": NODE,
    "GET /agent/artifacts/{sha256}": NODE,
    "POST /agent/attempts/{attempt_id}/checkpoints": NODE,
    "POST /agent/model-checks/{check_id}/begin": NODE,
    "POST /agent/model-checks/{check_id}/progress": NODE,
    "POST /agent/model-checks/{check_id}/complete": NODE,
    "POST /agent/imports/{import_id}/begin": NODE,
    "POST /agent/imports/{import_id}/progress": NODE,
    "POST /agent/imports/{import_id}/failed": NODE,
    "POST /agent/imports/{import_id}/uploads": NODE,
    "PUT /agent/imports/{import_id}/parts/{number}": NODE,
    "POST /agent/imports/{import_id}/complete": NODE,
    "PUT /agent/uploads/{upload_id}/parts/{number}": NODE,
    "POST /agent/uploads/{upload_id}/complete": NODE,
    "POST /agent/jobs/{job_id}/secrets": NODE,
    "POST /agent/telemetry": NODE,
}

# Topics of the live stream: what a caller needs to hear them, over the WebSocket and the SSE twin alike.
TOPICS = {
    "runs": "runs:read",
    "run:{run_id}": "runs:read",
    "run:{run_id}:logs": "runs:read",
    "pool": "pool:read",
}

# WebSocket doors, by path.
SOCKETS = {
    "ws/v1": KNOWN,  # then by topic
    "ws/v1/tunnel": NODE,
}

# What a scope is worth: the lowest role whose tokens may hold it.
LOWEST_ROLE = {
    "runs:read": "viewer",
    "datasets:read": "viewer",
    "models:read": "viewer",
    "functions:read": "viewer",
    "checkpoints:read": "viewer",
    "pool:read": "viewer",
    "project:read": "viewer",
    "members:read": "viewer",
    "members:write": "viewer",  # leaving
    "secrets:read": "viewer",  # their names
    "tokens:read": "viewer",
    "tokens:write": "viewer",  # one's own, and never more than one may oneself
    "runs:write": "editor",
    "sessions:write": "editor",
    "datasets:write": "editor",
    "models:write": "editor",
    "functions:write": "editor",
    "checkpoints:write": "editor",
    "runs:admin": "operator",  # priorities above the usual, ends by force
    "checkpoints:admin": "operator",  # protected aliases, retention
    "tokens:admin": "admin",  # those of others
    "members:admin": "admin",
    "project:admin": "admin",
    "audit:read": "admin",
    "secrets:write": "admin",
    "webhooks:admin": "admin",  # they carry what happens in the project out of it
    "team:admin": "admin of the team",
    "pool:admin": "admin of the installation",  # and who was appointed to a pool: POOL_CALLERS
    "installation:admin": "admin of the installation",
}
# Each may do what those before it may; the last two stand beside the roles of a project.
ROLES = ("viewer", "editor", "operator", "admin", "admin of the team", "admin of the installation")

# An attempt that the run has left behind (a newer epoch, on another node): what its old node still gets.
STALE = {
    "POST /agent/heartbeat": 200,  # and has to stop
    "POST /agent/leave": 409,  # a run needs it still
    "GET /agent/artifacts/{sha256}": 404,
    "POST /agent/attempts/{attempt_id}/checkpoints": 409,
    "PUT /agent/uploads/{upload_id}/parts/{number}": 200,  # bytes only: completing them is refused
    "POST /agent/uploads/{upload_id}/complete": 409,
    "POST /agent/model-checks/{check_id}/begin": 200,  # nor have checks of models
    "POST /agent/model-checks/{check_id}/progress": 200,
    "POST /agent/model-checks/{check_id}/complete": 422,  # without a body
    "POST /agent/imports/{import_id}/begin": 200,  # imports have nothing to do with runs
    "POST /agent/imports/{import_id}/progress": 200,
    "POST /agent/imports/{import_id}/failed": 422,  # without a body
    "POST /agent/imports/{import_id}/uploads": 422,
    "PUT /agent/imports/{import_id}/parts/{number}": 200,
    "POST /agent/imports/{import_id}/complete": 200,  # and learns that it is no model
    "POST /agent/jobs/{job_id}/secrets": 409,
    "POST /agent/telemetry": 422,  # without a body; each chunk has its own result
}

# Routes that name a pool or one of its nodes. A pool is its teams', not a project's.
OF_POOLS = ("/pools/", "/pool/nodes/")

# What each kind of caller gets of a pool, by what the route needs: "" stands for yes.
POOL_NEEDS = ("pool:read", "team:admin", "pool:admin", "installation:admin")
POOL_CALLERS: dict[str, dict[str, str]] = {
    name: dict(zip(POOL_NEEDS, answers, strict=True))
    for name, answers in {
        "viewer": ("", "403", "403", "403"),
        "operator": ("", "403", "403", "403"),
        "admin of the team": ("", "", "403", "403"),
        "pool admin": ("", "403", "", "403"),
        "pool admin of another pool": ("", "403", "403", "403"),
        "pool admin of another pool and team": ("404", "404", "404", "403"),
        "admin of another team": ("404", "403", "403", "403"),
        "admin of the installation": ("", "", "", ""),
    }.items()
}

# The object is there, and still this answers 404: the run has no such document, the question names no version.
LACKING = {
    "GET /runs/{run_id}/state/{name}",
    "GET /checkpoint-gates/{alias}/result",
}

BODIES: dict[str, Any] = {
    "POST /pools/{pool_name}/teams": {"team": "blue"},
    "PUT /pools/{pool_name}/teams/{team_id}/quota": {"limit_slots": 4},
    "PUT /pools/{pool_name}/teams/{team_id}/projects/{project_id}/quota": {"limit_slots": 4},
    "PUT /pools/{pool_name}/prices": {"device": "cpu", "per_hour": "0.5000"},
    "PUT /pools/{pool_name}/teams/{team_id}/budget": {"gpu_hours": "100"},
    "PUT /pools/{pool_name}/projects/{project_id}/budget": {"cost": "100"},
    "POST /pools/{pool_name}/admins": {"username": "viewer"},
    "POST /pools/{pool_name}/reservations": {"team": "red", "slots": 1, "duration_seconds": 60},
    "POST /pools/{pool_name}/maintenance": {"reason": "fans", "duration_seconds": 60},
    "POST /pool/nodes/{node_id}/quarantine": {"reason": "XID 79"},
    "POST /agent/jobs/{job_id}/secrets": {"epoch": 1},
    "POST /agent/attempts/{attempt_id}/checkpoints": {
        "step": 1, "manifest_sha256": "0" * 64, "tar_sha256": "0" * 64, "bytes": 1, "epoch": 1,
    },
    "POST /agent/imports/{import_id}/failed": {"message": "no"},
    "POST /agent/imports/{import_id}/uploads": {"commit": "0" * 40, "tar_sha256": "0" * 64, "bytes": 1},
    "PUT /checkpoint-aliases/{alias}": {"checkpoint": "prod"},
    "PATCH /members/{user_id}": {"role": "viewer"},
    "PATCH /team/members/{user_id}": {"role": "viewer"},
    "POST /checkpoint-gates/{alias}/runs": {"checkpoint": "prod"},
}  # fmt: skip
