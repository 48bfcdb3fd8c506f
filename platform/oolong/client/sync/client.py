"""The synchronous client."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TypeVar

import httpx

from oolong.client import calls, models
from oolong.client.archives import Progress
from oolong.client.calls import Call
from oolong.client.exchange import RetryPolicy
from oolong.client.settings import ClientSettings, read_settings
from oolong.client.sync.audit import Audit
from oolong.client.sync.checkpoints import Checkpoints
from oolong.client.sync.connection import Connection
from oolong.client.sync.datasets import Datasets
from oolong.client.sync.functions import Functions
from oolong.client.sync.models import Models
from oolong.client.sync.playgrounds import Playgrounds
from oolong.client.sync.pool import Pool
from oolong.client.sync.project import Projects
from oolong.client.sync.reward_tests import RewardTests
from oolong.client.sync.runs import Runs
from oolong.client.sync.secrets import Secrets
from oolong.client.sync.sessions import Sessions
from oolong.client.sync.streams import stream
from oolong.client.sync.sweeps import Sweeps
from oolong.client.sync.teams import Invitations, Members, ServiceAccounts, Teams
from oolong.client.sync.templates import Templates
from oolong.client.sync.tokens import Tokens
from oolong.client.sync.uploads import upload
from oolong.client.sync.views import Views
from oolong.client.sync.webhooks import Webhooks

T = TypeVar("T")


class Client:
    """`with Client() as client: run = client.runs.create(spec); client.runs.wait(run.id)`

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
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.settings: ClientSettings = read_settings(url=url, token=token)
        self._connection = Connection(
            self.settings,
            retries=retries or RetryPolicy(),
            timeout_seconds=timeout_seconds,
            transport=transport,
        )
        self.datasets = Datasets(self._connection)
        self.models = Models(self._connection)
        self.functions = Functions(self._connection)
        self.project = Projects(self._connection)
        self.runs = Runs(self._connection)
        self.reward_tests = RewardTests(self._connection)
        self.sessions = Sessions(self._connection)
        self.checkpoints = Checkpoints(self._connection)
        self.playgrounds = Playgrounds(self._connection)
        self.pool = Pool(self._connection)
        self.tokens = Tokens(self._connection)
        self.teams = Teams(self._connection)
        self.members = Members(self._connection)
        self.invitations = Invitations(self._connection)
        self.service_accounts = ServiceAccounts(self._connection)
        self.webhooks = Webhooks(self._connection)
        self.sweeps = Sweeps(self._connection)
        self.templates = Templates(self._connection)
        self.views = Views(self._connection)
        self.secrets = Secrets(self._connection)
        self.audit = Audit(self._connection)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def me(self) -> models.Me:
        return self.send(calls.account.me())

    def stream_ticket(self) -> models.StreamTicket:
        """Opens one stream, once, for a page or program that can send no header."""
        return self.send(calls.streams.ticket())

    def health(self) -> models.Health:
        return self.send(calls.account.health())

    def presets(self) -> list[models.Preset]:
        return (self.send(calls.runs.presets())).data

    def send(self, call: Call[T]) -> T:
        """Any call of `oolong.client.calls`."""
        return self._connection.send(call)

    def pages(self, call: Call[models.Page[T]]) -> Iterator[T]:
        """Every item of a list, page after page."""
        return self._connection.pages(call)

    def upload(self, path: str | Path, *, purpose: str, progress: Progress | None = None) -> models.Upload:
        """Stream a file, or a folder as a tar archive. Its sha256 goes along and is checked by the server.

        What is larger than 8 MiB goes in parts: a broken upload of the same bytes, also by an earlier process,
        is gone on with.
        """
        return upload(self._connection, Path(path), purpose=purpose, progress=progress)

    def stream(self, topic: str, *, after_seq: int | None = None) -> Generator[models.Frame, None]:
        """Frames of a topic (`run:<id>`, `run:<id>:logs`, `runs`, `pool`) as they come; a run's end with the run.

        A broken connection is resumed after the last frame; where a proxy lets no stream through, frames come in
        short answers. Raises StreamGap when frames are gone for good.
        """
        return stream(self._connection, topic, after_seq=after_seq)
