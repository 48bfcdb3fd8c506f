"""Reward tests: runs of kind reward_test with a stored report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from control_plane.accounts.identity.caller import Caller
from control_plane.assets.models import FunctionVersion
from control_plane.assets.storage import store
from control_plane.core.api.errors import FieldError, or_not_found, unprocessable
from control_plane.experiments.models import RewardTest
from control_plane.runs.reward_fingerprint import reward_fingerprint
from control_plane.runs.spec_resolution import Resolved, resolve_spec
from control_plane.runs.submission import queue_resolved
from oolong.contracts.user_code import SourceKind

LOWEST_PRIORITY = 0
MAX_STORED_BYTES = 4 * 1024 * 1024


def create_test(
    caller: Caller,
    *,
    dataset: str,
    split: str,
    reward: Mapping[str, Any],
    model: str | None = None,
    checkpoint: str | None = None,
    reward_test: Mapping[str, Any],
    stored: Sequence[Mapping[str, Any]] = (),
    now: datetime,
) -> RewardTest:
    """Queue a test with the lowest priority. The base model or checkpoint generates samples. 422 with pointers into the
    body."""
    lines = b"".join(json.dumps(sample).encode() + b"\n" for sample in stored)
    if len(lines) > MAX_STORED_BYTES:
        message = f"{len(lines)} bytes of completions; at most {MAX_STORED_BYTES}; send fewer or shorter ones"
        raise unprocessable("invalid", message, [FieldError("/stored", "too_large", message)])
    blob = store.Blob.of(lines) if lines else None
    named = str(reward.get("function") or reward.get("name") or "exact_match")
    document = {
        "kind": "reward_test", "name": f"test of {named}"[:120],
        "model": {"checkpoint": checkpoint} if checkpoint else {"base_model": model},
        "dataset": {"version": dataset, "split": split}, "reward": dict(reward),
        "reward_test": {**reward_test, "stored": blob.sha256 if blob else None},
        "placement": {"priority": LOWEST_PRIORITY},
    }  # fmt: skip
    resolved = resolve_spec(caller, document, internal=True)
    if resolved.errors:
        errors = [
            FieldError(_body_pointer(error.pointer), error.code, error.message) for error in resolved.errors
        ]
        raise unprocessable("invalid", f"{errors[0].pointer}: {errors[0].message}", errors)
    if blob is not None:
        store.put([lines])  # a rejected request stores nothing
    with transaction.atomic():
        if blob is not None:
            store.lock_blob(blob.sha256)
        run = queue_resolved(caller, resolved, now=now)
        assert resolved.spec is not None and resolved.dataset_version is not None
        function = _function(resolved)
        return RewardTest.objects.create(
            project=caller.project, run=run, reward=function.ref if function else resolved.spec.reward.name,
            reward_key=reward_fingerprint(resolved.spec.reward, function), dataset_version=resolved.dataset_version,
            samples_sha256=blob.sha256 if blob else "", samples_bytes=blob.bytes if blob else 0,
            created_by=caller.user, created_at=now,
        )  # fmt: skip


def tests(caller: Caller) -> QuerySet[RewardTest]:
    return RewardTest.objects.filter(project=caller.project).select_related(
        "run", "dataset_version__dataset", "created_by"
    )


def test_for(caller: Caller, test_id: str) -> RewardTest:
    return or_not_found(tests(caller).filter(pk=test_id).first(), "reward test", test_id)


def _function(resolved: Resolved) -> FunctionVersion | None:
    return resolved.functions.get(SourceKind.REWARD)


def _body_pointer(pointer: str) -> str:
    """The pointer into the body of POST /reward-tests for a pointer into the spec."""
    renamed = {
        "/dataset/version": "/dataset",
        "/dataset/split": "/split",
        "/model/base_model": "/model",
        "/model/checkpoint": "/checkpoint",
    }
    return renamed.get(pointer, pointer)
