"""Downloads a revision's files from a hub. Interrupted downloads resume, and every file is verified."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from gpu_agents.hf_import.file_selection import (
    INDEX_FILE,
    HubFile,
    ImportRejected,
    check_config,
    check_limits,
    parse_file_list,
    select_small_files,
    select_weight_files,
)
from oolong.system.backoff import Backoff

MAX_ATTEMPTS = 6
Progress = Callable[[int, int], None]  # bytes done, bytes in all


class HubDownloader:
    """Downloads one model. The token is sent to the hub only, not to hosts that it redirects to."""

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
        """Download all files of a revision to `folder` and return its commit. Raises ImportRejected."""
        commit, files = self._describe(revision)
        small = select_small_files(files)
        check_limits(small)
        done = 0
        for file in small:
            self._fetch_file(commit, file, folder, lambda _: None)
            done += file.bytes
        check_config((folder / "config.json").read_bytes())
        index = folder / INDEX_FILE
        weights = select_weight_files(files, index.read_bytes() if index.exists() else None)
        check_limits([*small, *weights])
        total = done + sum(file.bytes for file in weights)
        for file in weights:
            before = done
            self._fetch_file(commit, file, folder, lambda have, before=before: progress(before + have, total))  # type: ignore[misc]
            done += file.bytes
        progress(total, total)
        return commit

    def _describe(self, revision: str) -> tuple[str, list[HubFile]]:
        path = f"api/models/{self._model}/revision/{quote(revision, safe='')}"
        response = self._request("GET", f"{self._endpoint}/{path}", params={"blobs": "true"})
        try:
            document: Any = json.loads(response.content)
            commit, siblings = str(document["sha"]), document["siblings"]
        except (ValueError, KeyError, TypeError) as error:
            raise ImportRejected(
                f"{self._endpoint} does not answer like a Hugging Face hub: {error!r}"
            ) from error
        return commit, parse_file_list(siblings)

    def _request(self, method: str, url: str, **options: Any) -> httpx.Response:
        backoff = _new_backoff()
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                response = self._http.request(method, url, headers=self._headers, **options)
            except httpx.TransportError as error:
                if attempt == MAX_ATTEMPTS:
                    raise ImportRejected(
                        f"{self._endpoint} does not answer: {error or type(error).__name__}"
                    ) from error
            else:
                if response.status_code < 500 and response.status_code != 429:
                    self._raise_for_status(response)
                    return response
                if attempt == MAX_ATTEMPTS:
                    raise ImportRejected(f"{self._endpoint} answers with status {response.status_code}")
            self._pause(backoff.failed())
        raise AssertionError("the last attempt returns or raises")

    def _fetch_file(
        self, commit: str, file: HubFile, folder: Path, have_bytes: Callable[[int], None]
    ) -> None:
        """Rename to the final name once complete and verified; a `.part` file stays for the next attempt."""
        target, part = folder / file.name, folder / f"{file.name}.part"
        if target.exists():
            have_bytes(file.bytes)
            return
        url = f"{self._endpoint}/{self._model}/resolve/{commit}/{quote(file.name)}"
        failures, backoff = 0, _new_backoff()
        while (have := part.stat().st_size if part.exists() else 0) < file.bytes or not part.exists():
            try:
                self._append(url, part, have, file, have_bytes)
                if file.bytes == 0:
                    break
                failures = 0 if part.stat().st_size > have else failures + 1
            except httpx.HTTPError as error:
                failures += 1
                if failures >= MAX_ATTEMPTS:
                    why = str(error) or type(error).__name__
                    raise ImportRejected(
                        f"the download of {file.name} failed {failures} times: {why}"
                    ) from error
            if failures >= MAX_ATTEMPTS:
                raise ImportRejected(
                    f"the download of {file.name} stopped {failures} times after {have} of {file.bytes} bytes"
                )
            if failures:
                self._pause(backoff.failed())
        wrong = _verify(part, file)
        if wrong:
            part.unlink()
            raise ImportRejected(f"{file.name}: {wrong}; the file was deleted")
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
                self._raise_for_status(response)
            resumed = have and response.status_code == 206
            size = have if resumed else 0
            with part.open("ab" if resumed else "wb") as out:
                for (
                    chunk
                ) in response.iter_raw():  # unbuffered: an interrupted response keeps all received bytes
                    size += len(chunk)
                    if size > file.bytes:
                        raise ImportRejected(
                            f"{file.name} has more than the {file.bytes} bytes that the hub lists"
                        )
                    out.write(chunk)
                    have_bytes(size)

    def _raise_for_status(self, response: httpx.Response) -> None:
        """Raise ImportRejected with the meaning of the hub's error and what to do."""
        if not response.is_error:
            return
        code = response.headers.get("X-Error-Code", "")
        if code == "GatedRepo":
            why = "is gated: accept its terms on the hub, and name a project secret with a token of that account"
        elif response.status_code in (401, 403):
            why = (
                "is private or the token is not accepted: name a project secret with a token that may read it"
            )
        elif code == "RevisionNotFound":
            why = "has no such revision"
        elif response.status_code == 404:
            why = "does not exist, or needs a token that may read it"
        else:
            why = f"cannot be downloaded: the hub answered with status {response.status_code}"
        raise ImportRejected(f"{self._model} at {self._endpoint} {why}")


def _new_backoff() -> Backoff:
    return Backoff(initial=2.0, maximum=30.0)


def _verify(part: Path, file: HubFile) -> str:
    """Return how the bytes differ from the hub's description, or "" if they match."""
    size = part.stat().st_size
    if size != file.bytes:
        return f"{size} bytes received, the hub lists {file.bytes}"
    if file.sha256:
        with part.open("rb") as source:
            found = hashlib.file_digest(source, "sha256").hexdigest()
        return "" if found == file.sha256 else f"its SHA-256 is {found}, the hub lists {file.sha256}"
    if file.git_sha1:
        digest = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
        digest.update(part.read_bytes())
        found = digest.hexdigest()
        return "" if found == file.git_sha1 else f"its git hash is {found}, the hub lists {file.git_sha1}"
    return ""
