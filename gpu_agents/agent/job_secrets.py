"""The secrets of a job, asked for each time that it is started and kept by nobody here.

A job that lives on while the agent is restarted has its environment already, and its supervisor still takes the values
out of its output; so an adopted job needs nothing of this.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass

from gpu_agents.agent.api import AgentApi, Refused, Unreachable
from gpu_agents.agent.backoff import Backoff
from gpu_agents.agent.reconcile import Action, Launch, Restart
from gpu_agents.agent.records import JobRecord
from oolong.contracts.agent import DesiredJob, SecretsRequest
from oolong.contracts.lifecycle import EndReason

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NotGiven:
    """The job is never to have what it needs, so it is not started."""

    reason: EndReason
    message: str


class JobSecrets:
    def __init__(self, api: AgentApi) -> None:
        self._api = api
        self._backoff = Backoff(first=0.5, most=10.0)
        self._ask_after = 0.0  # monotonic

    def waits_for(self, action: Action) -> bool:
        """Whether this would start a job whose secrets could not be had a moment ago."""
        starts = isinstance(action, (Launch, Restart)) and bool(action.job.secrets)
        return starts and time.monotonic() < self._ask_after

    async def of(self, record: JobRecord, job: DesiredJob) -> Mapping[str, str] | NotGiven | None:
        """Variable -> value; None when the control plane cannot be asked now, or says that the job is not ours (any
        more), of which the next desired state tells."""
        if not job.secrets:
            return {}
        request = SecretsRequest(epoch=record.epoch, incarnation=record.incarnation)
        try:
            values = await self._api.job_secrets(record.job_id, request)
        except Unreachable as error:
            self._wait(record, error, error.retry_after)
            return None
        except Refused as refusal:
            if refusal.code == "secret_missing":
                return NotGiven(EndReason.SECRET_MISSING, refusal.detail)
            if refusal.code in ("stale_epoch", "not_found"):
                self._wait(record, refusal, None)
                return None
            return NotGiven(EndReason.PREPARATION_FAILED, f"its secrets are not to be had: {refusal.detail}")
        self._backoff.succeeded()
        return values

    def _wait(self, record: JobRecord, error: Exception, retry_after: float | None) -> None:
        wait = self._backoff.failed(retry_after)
        self._ask_after = time.monotonic() + wait
        log.warning(
            "%s is not started yet, its secrets are asked for again in %.1f s: %s", record.name, wait, error
        )
