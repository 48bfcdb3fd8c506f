"""The client: one attribute per resource of the API."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import TypeVar

import httpx

from oolong.client import models
from oolong.client.aio.audit import AsyncAudit
from oolong.client.aio.checkpoints import AsyncCheckpoints
from oolong.client.aio.connection import AsyncConnection
from oolong.client.aio.datasets import AsyncDatasets
from oolong.client.aio.functions import AsyncFunctions
from oolong.client.aio.models import AsyncModels
from oolong.client.aio.playgrounds import AsyncPlaygrounds
from oolong.client.aio.pool import AsyncPool
from oolong.client.aio.project import AsyncProjects
from oolong.client.aio.reward_tests import AsyncRewardTests
from oolong.client.aio.runs import AsyncRuns
from oolong.client.aio.secrets import AsyncSecrets
from oolong.client.aio.sessions import AsyncSessions
from oolong.client.aio.streams import stream
from oolong.client.aio.sweeps import AsyncSweeps
from oolong.client.aio.teams import AsyncInvitations, AsyncMembers, AsyncServiceAccounts, AsyncTeams
from oolong.client.aio.templates import AsyncTemplates
from oolong.client.aio.tokens import AsyncTokens
from oolong.client.aio.uploads import upload
from oolong.client.aio.views import AsyncViews
from oolong.client.aio.webhooks import AsyncWebhooks
from oolong.client.archives import Progress
from oolong.client.request_spec import RequestSpec, get, post
from oolong.client.settings import ClientSettings, read_settings
from oolong.client.transport import RetryPolicy

T = TypeVar("T")


class AsyncClient:
    """Client of one control plane, a context manager: `with Client() as client: client.runs.create(spec)`.

    URL and token come from the arguments, OOLONG_URL and OOLONG_TOKEN, or `oolong login`. Calls that are safe
    to repeat are repeated when the server is away or busy; POSTs carry an Idempotency-Key, so they are safe.
    Raises the errors of `oolong.client.errors`.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        retries: RetryPolicy | None = None,
        timeout_seconds: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.settings: ClientSettings = read_settings(url=url, token=token)
        self._connection = AsyncConnection(
            self.settings,
            retries=retries or RetryPolicy(),
            timeout_seconds=timeout_seconds,
            transport=transport,
        )
        self.datasets = AsyncDatasets(self._connection)
        self.models = AsyncModels(self._connection)
        self.functions = AsyncFunctions(self._connection)
        self.project = AsyncProjects(self._connection)
        self.runs = AsyncRuns(self._connection)
        self.reward_tests = AsyncRewardTests(self._connection)
        self.sessions = AsyncSessions(self._connection)
        self.checkpoints = AsyncCheckpoints(self._connection)
        self.playgrounds = AsyncPlaygrounds(self._connection)
        self.pool = AsyncPool(self._connection)
        self.tokens = AsyncTokens(self._connection)
        self.teams = AsyncTeams(self._connection)
        self.members = AsyncMembers(self._connection)
        self.invitations = AsyncInvitations(self._connection)
        self.service_accounts = AsyncServiceAccounts(self._connection)
        self.webhooks = AsyncWebhooks(self._connection)
        self.sweeps = AsyncSweeps(self._connection)
        self.templates = AsyncTemplates(self._connection)
        self.views = AsyncViews(self._connection)
        self.secrets = AsyncSecrets(self._connection)
        self.audit = AsyncAudit(self._connection)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._connection.close()

    async def me(self) -> models.Me:
        return await self.send(get("me", models.Me))

    async def stream_ticket(self) -> models.StreamTicket:
        """Opens one stream, once, for a page or program that can send no header."""
        return await self.send(post("stream-tickets", models.StreamTicket))

    async def health(self) -> models.Health:
        return await self.send(get("health", models.Health))

    async def presets(self) -> list[models.Preset]:
        return (await self.send(get("presets", models.Page[models.Preset]))).data

    async def send(self, spec: RequestSpec[T]) -> T:
        """Send any request of `oolong.client.request_spec`."""
        return await self._connection.send(spec)

    def pages(self, spec: RequestSpec[models.Page[T]]) -> AsyncIterator[T]:
        """Every item of a list, page after page."""
        return self._connection.pages(spec)

    async def upload(
        self, path: str | Path, *, purpose: str, progress: Progress | None = None
    ) -> models.Upload:
        """Stream a file, or a folder as a tar archive. Its sha256 goes along and is checked by the server.

        What is larger than 8 MiB goes in parts: a broken upload of the same bytes, also by an earlier process,
        resumes.
        """
        return await upload(self._connection, Path(path), purpose=purpose, progress=progress)

    def stream(self, topic: str, *, after_seq: int | None = None) -> AsyncGenerator[models.Frame, None]:
        """Frames of a topic (`run:<id>`, `run:<id>:logs`, `runs`, `pool`) as they come; a run's end with the run.

        A broken connection is resumed after the last frame; where a proxy lets no stream through, frames come in
        short answers. Raises StreamGap when frames are gone for good.
        """
        return stream(self._connection, topic, after_seq=after_seq)
