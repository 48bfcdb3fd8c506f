"""The hub's HTTP: what a revision is, and each file of it, resumed where it broke and verified."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from gpu_agents.hub.selection import (
    INDEX,
    HubFile,
    HubRefused,
    check_bounds,
    check_config,
    files_of,
    small_files,
    weight_files,
)

TRIES = 6
Progress = Callable[[int, int], None]  # bytes done, bytes in all


class Hub:
    """One model of a hub. The token goes to the hub alone: a redirect to another host does not take it along."""

    def __init__(
        self,
        http: httpx.Client,
        *,
        endpoint: str,
        model: str,
        token: str,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._http, self._endpoint, self._model, self._pause = http, endpoint.rstrip("/"), model, pause
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def fetch(self, revision: str, folder: Path, progress: Progress) -> str:
        """All files of the model at a revision, in `folder`; the commit that it is. Raises HubRefused."""
        commit, files = self._describe(revision)
        small = small_files(files)
        check_bounds(small)
        done = 0
        for file in small:
            self._fetch_file(commit, file, folder, lambda _: None)
            done += file.bytes
        check_config((folder / "config.json").read_bytes())
        index = folder / INDEX
        weights = weight_files(files, index.read_bytes() if index.exists() else None)
        check_bounds([*small, *weights])
        total = done + sum(file.bytes for file in weights)
        for file in weights:
            before = done
            self._fetch_file(commit, file, folder, lambda have, before=before: progress(before + have, total))  # type: ignore[misc]
            done += file.bytes
        progress(total, total)
        return commit

    def _describe(self, revision: str) -> tuple[str, list[HubFile]]:
        path = f"api/models/{self._model}/revision/{quote(revision, safe='')}"
        response = self._asked("GET", f"{self._endpoint}/{path}", params={"blobs": "true"})
        try:
            document: Any = json.loads(response.content)
            commit, siblings = str(document["sha"]), document["siblings"]
        except (ValueError, KeyError, TypeError) as error:
            raise HubRefused(f"{self._endpoint} does not answer as a hub does: {error!r}") from error
        return commit, files_of(siblings)

    def _asked(self, method: str, url: str, **options: Any) -> httpx.Response:
        for attempt in range(1, TRIES + 1):
            try:
                response = self._http.request(method, url, headers=self._headers, **options)
            except httpx.TransportError as error:
                if attempt == TRIES:
                    raise HubRefused(
                        f"{self._endpoint} does not answer: {error or type(error).__name__}"
                    ) from error
            else:
                if response.status_code < 500 and response.status_code != 429:
                    self._refuse(response)
                    return response
                if attempt == TRIES:
                    raise HubRefused(f"{self._endpoint} answers with status {response.status_code}")
            self._pause(min(30.0, 2.0**attempt))
        raise AssertionError("the last try returns or raises")

    def _fetch_file(
        self, commit: str, file: HubFile, folder: Path, have_bytes: Callable[[int], None]
    ) -> None:
        """Into its place only when it is whole and right; `.part` stays for the next try, also of another process."""
        target, part = folder / file.name, folder / f"{file.name}.part"
        if target.exists():
            have_bytes(file.bytes)
            return
        url = f"{self._endpoint}/{self._model}/resolve/{commit}/{quote(file.name)}"
        failures = 0
        while (have := part.stat().st_size if part.exists() else 0) < file.bytes or not part.exists():
            try:
                self._append(url, part, have, file, have_bytes)
                if file.bytes == 0:
                    break
                failures = 0 if part.stat().st_size > have else failures + 1
            except httpx.HTTPError as error:
                failures += 1
                if failures >= TRIES:
                    why = str(error) or type(error).__name__
                    raise HubRefused(f"{file.name} broke off {failures} times: {why}") from error
            if failures >= TRIES:
                raise HubRefused(f"{file.name} ends after {have} of {file.bytes} bytes, {failures} times")
            if failures:
                self._pause(min(30.0, 2.0**failures))
        wrong = _wrong(part, file)
        if wrong:
            part.unlink()
            raise HubRefused(f"{file.name}: {wrong}; it was thrown away")
        part.rename(target)

    def _append(
        self, url: str, part: Path, have: int, file: HubFile, have_bytes: Callable[[int], None]
    ) -> None:
        headers = {**self._headers, "Accept-Encoding": "identity"} | (
            {"Range": f"bytes={have}-"} if have else {}
        )
        with self._http.stream("GET", url, headers=headers) as response:
            if response.status_code >= 500 or response.status_code == 429:
                raise httpx.HTTPError(f"status {response.status_code}")
            if response.is_error:
                response.read()
                self._refuse(response)
            resumed = have and response.status_code == 206
            size = have if resumed else 0
            with part.open("ab" if resumed else "wb") as out:
                for chunk in response.iter_raw():  # as it comes: nothing of a broken answer is lost
                    size += len(chunk)
                    if size > file.bytes:
                        raise HubRefused(
                            f"{file.name} has more than the {file.bytes} bytes that the hub names"
                        )
                    out.write(chunk)
                    have_bytes(size)

    def _refuse(self, response: httpx.Response) -> None:
        """Says what the hub's refusal means and what to do."""
        if not response.is_error:
            return
        code = response.headers.get("X-Error-Code", "")
        if code == "GatedRepo":
            why = "is gated: accept its terms on the hub, and name a secret with a token of that account"
        elif response.status_code in (401, 403):
            why = (
                "is private or the token is not accepted: name a project secret with a token that may read it"
            )
        elif code == "RevisionNotFound":
            why = "has no such revision"
        elif response.status_code == 404:
            why = "is not there, or a token that may see it is needed"
        else:
            why = f"cannot be had: the hub answers with status {response.status_code}"
        raise HubRefused(f"{self._model} at {self._endpoint} {why}")


def _wrong(part: Path, file: HubFile) -> str:
    """Why these bytes are not the file's; "" when they are."""
    size = part.stat().st_size
    if size != file.bytes:
        return f"{size} bytes came, the hub names {file.bytes}"
    if file.sha256:
        with part.open("rb") as source:
            found = hashlib.file_digest(source, "sha256").hexdigest()
        return "" if found == file.sha256 else f"its SHA-256 is {found}, the hub names {file.sha256}"
    if file.git_sha1:
        digest = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
        digest.update(part.read_bytes())
        found = digest.hexdigest()
        return "" if found == file.git_sha1 else f"its git hash is {found}, the hub names {file.git_sha1}"
    return ""
