"""Fetch the secrets of a job each time it starts; the agent does not store them.

Adopted jobs need no secrets: they have their environment, and their supervisors still redact their output.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from gpu_agents.agent.api import AgentApi, ApiError, ServerUnavailable
from gpu_agents.agent.reconcile import Action, Launch, Restart
from gpu_agents.agent.records import JobRecord
from oolong.contracts.agent import DesiredJob, SecretsRequest
from oolong.contracts.lifecycle import EndReason
from oolong.system.backoff import Backoff

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SecretsUnavailable:
    """The job cannot get its secrets, so it is not started."""

    reason: EndReason
    message: str


class JobSecrets:
    def __init__(self, api: AgentApi) -> None:
        self._api = api
        self._backoff = Backoff(initial=0.5, maximum=10.0)
        self._retry_at = 0.0  # monotonic

    def is_backing_off(self, action: Action) -> bool:
        """Whether the action would start a job with secrets while the last fetch's backoff lasts."""
        starts = isinstance(action, (Launch, Restart)) and bool(action.job.secrets)
        return starts and time.monotonic() < self._retry_at

    async def fetch(
        self, record: JobRecord, job: DesiredJob
    ) -> Mapping[str, str] | SecretsUnavailable | None:
        """Return variable -> value; None if the control plane is unavailable, or says that the job is not this
        node's, which the next desired state will show."""
        if not job.secrets:
            return {}
        request = SecretsRequest(epoch=record.epoch, incarnation=record.incarnation)
        try:
            values = await self._api.job_secrets(record.job_id, request)
        except ServerUnavailable as error:
            self._wait(record, error, error.retry_after)
            return None
        except ApiError as refusal:
            if refusal.code == "secret_missing":
                return SecretsUnavailable(EndReason.SECRET_MISSING, refusal.detail)
            if refusal.code in ("stale_epoch", "not_found"):
                self._wait(record, refusal, None)
                return None
            return SecretsUnavailable(
                EndReason.PREPARATION_FAILED, f"its secrets cannot be fetched: {refusal.detail}"
            )
        self._backoff.succeeded()
        return values

    def _wait(self, record: JobRecord, error: Exception, retry_after: float | None) -> None:
        wait = self._backoff.failed(retry_after)
        self._retry_at = time.monotonic() + wait
        log.warning("start of %s waits for its secrets, retrying in %.1f s: %s", record.name, wait, error)
