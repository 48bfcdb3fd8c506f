"""Datasets, as the client offers them."""

from __future__ import annotations

import builtins
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oolong.client import models
from oolong.client.aio.connection import AsyncResource
from oolong.client.aio.uploads import upload
from oolong.client.archives import Progress
from oolong.client.async_primitives import sleep
from oolong.client.errors import NotFound, OolongError
from oolong.client.request_spec import RequestSpec, delete, drop_none, get, page, post, put
from oolong.client.validations import refuse_invalid

Checking = Callable[[models.DatasetValidation], None]
LONG_POLL_SECONDS = 30  # that one request waits for a validation to move


class AsyncDatasets(AsyncResource):
    def list(self) -> AsyncIterator[models.Dataset]:
        return self._pages(page("datasets", models.Dataset))

    async def get(self, dataset_id: str) -> models.Dataset:
        return await self._send(get("datasets/{}", models.Dataset, dataset_id))

    async def create(self, name: str, *, description: str = "") -> models.Dataset:
        body = {"name": name, "description": description}
        return await self._send(post("datasets", models.Dataset, body=body))

    async def named(self, name: str) -> models.Dataset:
        """The dataset of that name. Raises NotFound."""
        async for dataset in self._pages(page("datasets", models.Dataset, name=name)):
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
        body = {"validation_id": checked.id}
        return await self._send(post("datasets/{}/versions", models.DatasetVersion, dataset.id, body=body))

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
            # The server fetches it once per request; a retry after a lost response fetches it again.
            address = drop_none({"url": str(path), "secret": secret})
            fetch = RequestSpec("POST", "uploads/fetch", models.Upload, body=address, idempotent=True)
            uploaded = await self._send(fetch)
        else:
            uploaded = await upload(self._connection, Path(path), purpose="dataset", progress=progress)
        given = dict(mapping) if mapping is not None else None
        body = {"config": config, "upload_id": uploaded.id, "mapping": given, "stop_after": stop_after}
        found = await self._send(post("dataset-validations", models.DatasetValidation, body=body))
        began = time.monotonic()
        while not found.ended:
            if time.monotonic() - began > timeout_seconds:
                raise TimeoutError(f"validation {found.id} is {found.state} after {timeout_seconds:g} s")
            asked = time.monotonic()
            wait = min(1, LONG_POLL_SECONDS) if checking is not None else LONG_POLL_SECONDS
            request = get(
                "dataset-validations/{}",
                models.DatasetValidation,
                found.id,
                wait=wait or None,
                seen=found.state,
            )
            found = await self._send(request)
            if checking is not None:
                checking(found)
            if not found.ended and (took := time.monotonic() - asked) < poll_seconds:
                await sleep(poll_seconds - took)
        if found.state == "FAILED":
            raise OolongError(f"the rows could not be checked: {found.message}")
        return found

    async def report(self, validation_id: str) -> bytes:
        """Every fault of a validation, as JSON lines."""
        return await self._send(get("dataset-validations/{}/report", bytes, validation_id))

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
            return await self._send(get("dataset-versions/resolve", models.DatasetVersion, ref=id_or_ref))
        return await self._send(get("dataset-versions/{}", models.DatasetVersion, id_or_ref))

    async def derive(
        self, id_or_ref: str, ratios: Mapping[str, float], *, seed: int = 0, stratify: str | None = None
    ) -> models.DatasetVersion:
        """A version with the same rows in new splits; rows with the same prompt share a split."""
        parent = await self.version(id_or_ref)
        body = {"ratios": dict(ratios), "seed": seed, "stratify": stratify}
        request = post("dataset-versions/{}/split", models.DatasetVersion, parent.id, body=body)
        return await self._send(request)

    async def merge(self, name: str, versions: Sequence[str]) -> models.DatasetVersion:
        """The rows of all of these versions, as the next version of the dataset of that name, which is created when
        there is none. A row without a source gets the name of its dataset as source, for dataset.weights."""
        found = [(await self.version(version)).id for version in versions]  # before a dataset is created
        try:
            dataset = await self.named(name)
        except NotFound:
            dataset = await self.create(name)
        request = post("datasets/{}/merge", models.DatasetVersion, dataset.id, body={"versions": found})
        return await self._send(request)

    async def set_alias(
        self, name: str, alias: str, version: str, *, expected: int | None = None
    ) -> models.DatasetAlias:
        """Let name@alias mean a version: its number, reference or id. 409 if it no longer means `expected`."""
        dataset = await self.named(name)
        body = {"version": version, **drop_none({"expected": expected})}
        path = "datasets/{}/aliases/{}"
        return await self._send(put(path, models.DatasetAlias, dataset.id, alias, body=body))

    async def delete_alias(self, name: str, alias: str) -> None:
        dataset = await self.named(name)
        await self._send(delete("datasets/{}/aliases/{}", dataset.id, alias))

    async def aliases(self, name: str) -> builtins.list[models.DatasetAlias]:
        dataset = await self.named(name)
        return [
            alias async for alias in self._pages(page("datasets/{}/aliases", models.DatasetAlias, dataset.id))
        ]

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
        path = "dataset-versions/{}/statistics"
        asked = await self._send(post(path, models.DatasetStatistics, version.id, body={"model": model}))
        began = time.monotonic()
        while True:
            known = self._pages(page(path, models.DatasetStatistics, version.id, over=over))
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
        path = "dataset-versions/{}/diff"
        return await self._send(get(path, models.DatasetDifference, newer.id, **{"from": old}))

    def rows(
        self, version_id: str, *, text: str | None = None, split: str | None = None
    ) -> AsyncIterator[models.DatasetRow]:
        """All rows, or those that hold a text or are of a split."""
        return self._pages(
            page("dataset-versions/{}/rows", models.DatasetRow, version_id, q=text, split=split)
        )
