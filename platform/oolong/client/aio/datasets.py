"""Datasets, as the client offers them."""

from __future__ import annotations

import builtins
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oolong.client import endpoints, models
from oolong.client.aio.connection import AsyncConnection
from oolong.client.aio.uploads import upload
from oolong.client.archives import Progress
from oolong.client.async_primitives import sleep
from oolong.client.errors import NotFound, OolongError
from oolong.client.validations import refuse_invalid

Checking = Callable[[models.DatasetValidation], None]
LONG_POLL_SECONDS = 30  # that one request waits for a validation to move


class AsyncDatasets:
    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    def list(self) -> AsyncIterator[models.Dataset]:
        return self._connection.pages(endpoints.datasets.page())

    async def get(self, dataset_id: str) -> models.Dataset:
        return await self._connection.send(endpoints.datasets.get(dataset_id))

    async def create(self, name: str, *, description: str = "") -> models.Dataset:
        return await self._connection.send(endpoints.datasets.create(name, description))

    async def named(self, name: str) -> models.Dataset:
        """The dataset of that name. Raises NotFound."""
        async for dataset in self._connection.pages(endpoints.datasets.page(name=name)):
            return dataset
        raise NotFound(404, code="not_found", detail=f"no dataset is named {name!r}")

    async def upload(
        self,
        path: str | Path,
        *,
        name: str,
        mapping: Mapping[str, Any],
        description: str = "",
        config: str = "",
        secret: str | None = None,
        timeout_seconds: float = 1800.0,
        progress: Progress | None = None,
        checking: Checking | None = None,
    ) -> models.DatasetVersion:
        """Have every row of a file checked, and make it the next version of the dataset of that name.

        `path`: a file, a folder laid out as the Hugging Face hub has datasets (with `config` when it has several),
        or a public https address, which the server fetches (with the project secret `secret` as Authorization).
        The dataset is made if need be, and only once the rows are good. Raises Invalid with the faulty rows.
        """
        checked = await self.validate(
            path, mapping=mapping, config=config, secret=secret, timeout_seconds=timeout_seconds,
            progress=progress, checking=checking,
        )  # fmt: skip
        refuse_invalid(checked)
        try:
            dataset = await self.named(name)
        except NotFound:
            dataset = await self.create(name, description=description)
        return await self._connection.send(endpoints.datasets.create_version(dataset.id, checked.id))

    async def validate(
        self,
        path: str | Path,
        *,
        mapping: Mapping[str, Any] | None = None,
        stop_after: int | None = None,
        config: str = "",
        secret: str | None = None,
        timeout_seconds: float = 1800.0,
        poll_seconds: float = 0.3,
        progress: Progress | None = None,
        checking: Checking | None = None,
    ) -> models.DatasetValidation:
        """Upload a file and have its rows checked, all or the first `stop_after`; nothing becomes a dataset.

        `progress` is called with the bytes that were uploaded, then `checking` every second with the validation as far
        as it has come.
        Raises TimeoutError, and OolongError when the check itself failed; rows with faults are an answer.
        """
        if str(path).startswith("https://"):
            uploaded = await self._connection.send(endpoints.datasets.fetch(str(path), secret))
        else:
            uploaded = await upload(self._connection, Path(path), purpose="dataset", progress=progress)
        found = await self._connection.send(
            endpoints.datasets.create_validation(uploaded.id, mapping, stop_after, config)
        )
        began = time.monotonic()
        while not found.ended:
            if time.monotonic() - began > timeout_seconds:
                raise TimeoutError(f"validation {found.id} is {found.state} after {timeout_seconds:g} s")
            asked = time.monotonic()
            wait = min(1, LONG_POLL_SECONDS) if checking is not None else LONG_POLL_SECONDS
            request = endpoints.datasets.get_validation(found.id, wait=wait or None, seen=found.state)
            found = await self._connection.send(request)
            if checking is not None:
                checking(found)
            if not found.ended and (took := time.monotonic() - asked) < poll_seconds:
                await sleep(poll_seconds - took)
        if found.state == "FAILED":
            raise OolongError(f"the rows could not be checked: {found.message}")
        return found

    async def report(self, validation_id: str) -> bytes:
        """Every fault of a validation, as JSON lines."""
        return await self._connection.send(endpoints.datasets.validation_report(validation_id))

    async def preview(
        self,
        path: str | Path,
        *,
        mapping: Mapping[str, Any] | None = None,
        limit: int = 20,
        progress: Progress | None = None,
        checking: Checking | None = None,
    ) -> models.DatasetValidation:
        """Columns, first rows, and the rows rendered by the mapping; nothing becomes a dataset."""
        return await self.validate(
            path, mapping=mapping, stop_after=limit, progress=progress, checking=checking
        )

    async def version(self, id_or_ref: str) -> models.DatasetVersion:
        """By id (dsv_…) or by reference (name@3, name@latest)."""
        if "@" in id_or_ref:
            return await self._connection.send(endpoints.datasets.resolve(id_or_ref))
        return await self._connection.send(endpoints.datasets.get_version(id_or_ref))

    async def derive(
        self, id_or_ref: str, ratios: Mapping[str, float], *, seed: int = 0, stratify: str | None = None
    ) -> models.DatasetVersion:
        """A version with the same rows in new splits; rows with the same prompt share a split."""
        parent = await self.version(id_or_ref)
        return await self._connection.send(endpoints.datasets.derive(parent.id, ratios, seed, stratify))

    async def merge(self, name: str, versions: Sequence[str]) -> models.DatasetVersion:
        """The rows of all of these versions, as the next version of the dataset of that name, which is created when
        there is none. A row without a source gets the name of its dataset as source, for dataset.weights."""
        found = [(await self.version(version)).id for version in versions]  # before a dataset is created
        try:
            dataset = await self.named(name)
        except NotFound:
            dataset = await self.create(name)
        return await self._connection.send(endpoints.datasets.merge(dataset.id, found))

    async def set_alias(
        self, name: str, alias: str, version: str, *, expected: int | None = None
    ) -> models.DatasetAlias:
        """Let name@alias mean a version: its number, reference or id. 409 if it no longer means `expected`."""
        dataset = await self.named(name)
        return await self._connection.send(endpoints.datasets.set_alias(dataset.id, alias, version, expected))

    async def delete_alias(self, name: str, alias: str) -> None:
        dataset = await self.named(name)
        await self._connection.send(endpoints.datasets.delete_alias(dataset.id, alias))

    async def aliases(self, name: str) -> builtins.list[models.DatasetAlias]:
        dataset = await self.named(name)
        return [alias async for alias in self._connection.pages(endpoints.datasets.aliases(dataset.id))]

    async def statistics(
        self,
        id_or_ref: str,
        *,
        model: str,
        over: int | None = None,
        timeout_seconds: float = 1800.0,
        poll_seconds: float = 0.5,
        counting: Callable[[models.DatasetStatistics], None] | None = None,
    ) -> models.DatasetStatistics:
        """Token lengths under a stored model's tokenizer; counted now if they were not, and then kept.

        `over`: say which share of the rows is longer. `counting` is called at each look with the statistics as far as
        they are. Raises TimeoutError, and OolongError when it failed.
        """
        version = await self.version(id_or_ref)
        asked = await self._connection.send(endpoints.datasets.measure(version.id, model))
        began = time.monotonic()
        while True:
            known = self._connection.pages(endpoints.datasets.statistics(version.id, over=over))
            found = await anext(one async for one in known if one.id == asked.id)
            if found.state == "FAILED":
                raise OolongError(f"the tokens could not be counted: {found.message}")
            if found.ended:
                return found
            if counting is not None:
                counting(found)
            if time.monotonic() - began > timeout_seconds:
                raise TimeoutError(f"statistics {found.id} are {found.state} after {timeout_seconds:g} s")
            await sleep(poll_seconds)

    async def diff(self, old: str, new: str) -> models.DatasetDifference:
        """What changed from one version to the other, by id or reference."""
        newer = await self.version(new)
        return await self._connection.send(endpoints.datasets.diff(newer.id, old))

    def rows(
        self, version_id: str, *, text: str | None = None, split: str | None = None
    ) -> AsyncIterator[models.DatasetRow]:
        """All rows, or those that hold a text or are of a split."""
        return self._connection.pages(endpoints.datasets.rows(version_id, text=text, split=split))
