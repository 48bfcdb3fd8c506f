"""The synchronous client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import httpx

from oolong.client import calls, models
from oolong.client.archives import ONE_REQUEST_BYTES, Body, Progress, body_of, counted, missing_parts
from oolong.client.calls import Call
from oolong.client.checkpoints import Checkpoints
from oolong.client.downloads import Download
from oolong.client.errors import NotFound, OolongError, ServerError, StreamGap, Unreachable, error_of
from oolong.client.exchange import (
    EventReader,
    RetryPolicy,
    new_request,
    read_answer,
    retry_after,
    worth_repeating,
)
from oolong.client.exports import PartDownload
from oolong.client.functions import source_text, verified
from oolong.client.sessions import Sessions
from oolong.client.settings import ClientSettings, read_settings
from oolong.client.validations import refuse_invalid

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
        self._retries = retries or RetryPolicy()
        self._http = httpx.Client(
            base_url=f"{self.settings.url}/api/v1/",
            headers={"Authorization": f"Bearer {self.settings.token}"},
            timeout=httpx.Timeout(timeout_seconds, connect=10.0),
            transport=transport,
        )
        self.datasets = Datasets(self)
        self.models = Models(self)
        self.functions = Functions(self)
        self.project = Projects(self)
        self.runs = Runs(self)
        self.sessions = Sessions(self)
        self.checkpoints = Checkpoints(self)
        self.pool = Pool(self)
        self.tokens = Tokens(self)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def me(self) -> models.Me:
        return self.send(calls.me())

    def health(self) -> models.Health:
        return self.send(calls.health())

    def presets(self) -> list[models.Preset]:
        answer = self.send(calls.presets())
        return [
            models.Preset.model_validate(item)
            for item in (answer["data"] if isinstance(answer, dict) else answer)
        ]

    def send(self, call: Call[T]) -> T:
        """Any call of `oolong.client.calls`."""
        response = self._repeat(
            lambda: self._http.send(new_request(self._http, call)), repeatable=call.repeatable
        )
        return read_answer(call, response)

    def pages(self, path: str, item: type[T], **params: Any) -> Iterator[T]:
        """Every item of a list, page after page."""
        cursor: str | None = None
        while True:
            page = self.send(calls.page(path, item, limit=100, cursor=cursor, **params))
            yield from page.data
            if not page.has_more:
                return
            cursor = page.next_cursor

    def upload(self, path: str | Path, *, purpose: str, progress: Progress | None = None) -> models.Upload:
        """Stream a file, or a folder as a tar archive. Its sha256 goes along and is checked by the server.

        What is larger than 8 MiB goes in parts: a broken upload of the same bytes, also by an earlier process,
        is gone on with.
        """
        body = body_of(Path(path))
        if body.size > ONE_REQUEST_BYTES:
            return self._upload_in_parts(body, purpose=purpose, progress=progress)
        call = Call("POST", "uploads", models.Upload)

        def send() -> httpx.Response:
            request = self._http.build_request(
                "POST",
                call.path,
                params={"filename": body.filename, "purpose": purpose},
                content=counted(body, progress),
                headers={
                    "Content-Type": "application/octet-stream",
                    "Content-Length": str(body.size),
                    "X-Content-SHA256": body.sha256,
                },
                timeout=httpx.Timeout(600.0, connect=10.0),
            )
            return self._http.send(request)

        return read_answer(call, self._repeat(send, repeatable=True))  # content-addressed: twice is once

    def _upload_in_parts(self, body: Body, *, purpose: str, progress: Progress | None) -> models.Upload:
        session = self.send(calls.begin_session(body.filename, purpose, body.size, body.sha256))
        if session.upload is not None:
            return session.upload
        missing = missing_parts(session)
        sent = body.size - sum(part.size for part in missing)
        for part in missing:
            self.send(calls.put_part(session.id, part.number, body.read(part.offset, part.size)))
            sent += part.size
            if progress is not None:
                progress(sent, body.size)
        return self.send(calls.complete_session(session.id))

    def stream(self, topic: str, *, after_seq: int | None = None) -> Iterator[models.Frame]:
        """Frames of a topic (`run:<id>`, `run:<id>:logs`, `runs`, `pool`) as they come; a run's end with the run.

        A broken connection is resumed after the last frame. Raises StreamGap when frames are gone for good.
        """
        last = after_seq
        failures = 0
        while True:
            try:
                for frame in self._events(topic, last):
                    failures = 0
                    if frame is None:
                        return
                    if frame.type == "gap":
                        raise StreamGap(topic, int(frame.data["from"]), int(frame.data["to"]))
                    last = max(last or 0, frame.seq)
                    yield frame
            except (httpx.HTTPError, ServerError) as error:
                failures += 1
                if failures >= self._retries.tries:
                    raise Unreachable(f"stream {topic}: {error}") from error
            time.sleep(self._retries.wait(max(1, failures), None))

    def _events(self, topic: str, after_seq: int | None) -> Iterator[models.Frame | None]:
        """Frames of one connection; None when the server says that nothing more will come."""
        params = {"topic": topic} | ({} if after_seq is None else {"after_seq": str(after_seq)})
        with self._http.stream(
            "GET",
            "stream",
            params=params,
            timeout=httpx.Timeout(60.0, connect=10.0),
            headers={"Accept": "text/event-stream"},
        ) as response:
            if not response.is_success:
                response.read()
                raise error_of(response.status_code, _document(response))
            reader = EventReader()
            for line in response.iter_lines():
                event = reader.feed(line)
                if event is None or event[0] == "subscribed":
                    continue
                yield None if event[0] == "end" else models.Frame.model_validate_json(event[2])

    def download(self, path: str, download: Download) -> None:
        """GET into a file, going on where a broken connection ended."""
        failures = 0
        while not download.complete:
            try:
                with self._http.stream("GET", path, headers=download.headers()) as response:
                    if response.status_code == 416:
                        download.restart()
                        continue
                    if not response.is_success:
                        response.read()
                        raise error_of(response.status_code, _document(response))
                    download.begin(response.status_code, response.headers)
                    for chunk in response.iter_bytes():
                        download.write(chunk)
                        failures = 0
            except (httpx.HTTPError, ServerError) as error:
                failures += 1
                if failures >= self._retries.tries:
                    raise Unreachable(f"GET {path}: {error or type(error).__name__}") from error
                time.sleep(self._retries.wait(failures, None))
        download.finish()

    def download_part(self, path: str, part: PartDownload) -> None:
        """GET a range of bytes into a file, going on where a broken connection ended."""
        failures = 0
        while not part.complete:
            try:
                with self._http.stream("GET", path, headers=part.headers()) as response:
                    if not response.is_success:
                        response.read()
                        raise error_of(response.status_code, _document(response))
                    part.begin(response.status_code)
                    for chunk in response.iter_bytes():
                        part.write(chunk)
                        failures = 0
            except (httpx.HTTPError, ServerError) as error:
                failures += 1
                if failures >= self._retries.tries:
                    raise Unreachable(f"GET {path}: {error or type(error).__name__}") from error
                time.sleep(self._retries.wait(failures, None))
        part.finish()

    def _repeat(self, send: Callable[[], httpx.Response], *, repeatable: bool) -> httpx.Response:
        failures = 0
        while True:
            try:
                response = send()
            except httpx.TransportError as error:
                failures += 1
                if not repeatable or failures >= self._retries.tries:
                    raise Unreachable(
                        f"{self.settings.url} does not answer: {error or type(error).__name__}"
                    ) from error
                wait = self._retries.wait(failures, None)
            else:
                failures += 1
                if not (repeatable and worth_repeating(response)) or failures >= self._retries.tries:
                    return response
                wait = self._retries.wait(failures, retry_after(response))
            time.sleep(wait)


class Datasets:
    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self) -> Iterator[models.Dataset]:
        return self._client.pages("datasets", models.Dataset)

    def get(self, dataset_id: str) -> models.Dataset:
        return self._client.send(calls.get_dataset(dataset_id))

    def create(self, name: str, *, description: str = "") -> models.Dataset:
        return self._client.send(calls.create_dataset(name, description))

    def named(self, name: str) -> models.Dataset:
        """The dataset of that name. Raises NotFound."""
        for dataset in self._client.pages("datasets", models.Dataset, name=name):
            return dataset
        raise NotFound(404, code="not_found", detail=f"no dataset is named {name!r}")

    def upload(
        self,
        path: str | Path,
        *,
        name: str,
        mapping: Mapping[str, Any],
        description: str = "",
        timeout_seconds: float = 1800.0,
        progress: Progress | None = None,
    ) -> models.DatasetVersion:
        """Upload a file, have every row checked, and make it the next version of the dataset of that name.

        The dataset is made if need be, and only once the rows are good. Raises Invalid with the faulty rows.
        """
        checked = self.validate(path, mapping=mapping, timeout_seconds=timeout_seconds, progress=progress)
        refuse_invalid(checked)
        try:
            dataset = self.named(name)
        except NotFound:
            dataset = self.create(name, description=description)
        return self._client.send(calls.create_version(dataset.id, checked.id))

    def validate(
        self,
        path: str | Path,
        *,
        mapping: Mapping[str, Any] | None = None,
        stop_after: int | None = None,
        timeout_seconds: float = 1800.0,
        poll_seconds: float = 0.3,
        progress: Progress | None = None,
    ) -> models.DatasetValidation:
        """Upload a file and have its rows checked, all or the first `stop_after`; nothing becomes a dataset.

        Raises TimeoutError, and OolongError when the check itself failed; rows with faults are an answer.
        """
        upload = self._client.upload(path, purpose="dataset", progress=progress)
        found = self._client.send(calls.create_validation(upload.id, mapping, stop_after))
        began = time.monotonic()
        while not found.ended:
            if time.monotonic() - began > timeout_seconds:
                raise TimeoutError(f"validation {found.id} is {found.state} after {timeout_seconds:g} s")
            time.sleep(poll_seconds)
            found = self._client.send(calls.get_validation(found.id))
        if found.state == "FAILED":
            raise OolongError(f"the rows could not be checked: {found.message}")
        return found

    def report(self, validation_id: str) -> bytes:
        """Every fault of a validation, as JSON lines."""
        return self._client.send(calls.validation_report(validation_id))

    def preview(
        self,
        path: str | Path,
        *,
        mapping: Mapping[str, Any] | None = None,
        limit: int = 20,
        progress: Progress | None = None,
    ) -> models.DatasetPreview:
        """Columns, first rows, and the rows rendered by the mapping; nothing becomes a dataset."""
        upload = self._client.upload(path, purpose="dataset", progress=progress)
        return self._client.send(calls.preview_dataset(upload.id, mapping, limit))

    def version(self, id_or_ref: str) -> models.DatasetVersion:
        """By id (dsv_…) or by reference (name@3, name@latest)."""
        if "@" in id_or_ref:
            return self._client.send(calls.resolve_version(id_or_ref))
        return self._client.send(calls.get_version(id_or_ref))

    def derive(
        self, id_or_ref: str, ratios: Mapping[str, float], *, seed: int = 0, stratify: str | None = None
    ) -> models.DatasetVersion:
        """A version with the same rows in new splits; rows with the same prompt share a split."""
        parent = self.version(id_or_ref)
        return self._client.send(calls.derive_version(parent.id, ratios, seed, stratify))

    def diff(self, old: str, new: str) -> models.DatasetDifference:
        """What changed from one version to the other, by id or reference."""
        newer = self.version(new)
        return self._client.send(calls.diff_versions(newer.id, old))

    def rows(
        self, version_id: str, *, text: str | None = None, split: str | None = None
    ) -> Iterator[models.DatasetRow]:
        """All rows, or those that hold a text or are of a split."""
        return self._client.pages(
            f"dataset-versions/{version_id}/rows", models.DatasetRow, q=text, split=split
        )


class Models:
    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self) -> Iterator[models.Model]:
        return self._client.pages("models", models.Model)

    def get(self, model_id: str) -> models.Model:
        return self._client.send(calls.get_model(model_id))

    def upload(self, path: str | Path, *, name: str, progress: Progress | None = None) -> models.Model:
        """Register a Hugging Face directory (or an archive of one) as a base model."""
        upload = self._client.upload(path, purpose="model", progress=progress)
        return self._client.send(calls.register_model(name, upload_id=upload.id, path=None))

    def register_path(self, path: str, *, name: str) -> models.Model:
        """Register a directory that lies on the nodes themselves."""
        return self._client.send(calls.register_model(name, upload_id=None, path=path))


class Functions:
    """Versioned source of users: rewards, workflows, losses (`oolong.contracts.user_source`)."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self, *, kind: str | None = None) -> Iterator[models.Function]:
        return self._client.pages("functions", models.Function, kind=kind)

    def get(self, function_id: str) -> models.Function:
        return self._client.send(calls.get_function(function_id))

    def upload(
        self, path: str | Path, *, name: str, kind: str, description: str = ""
    ) -> models.FunctionVersion:
        """Make a Python file the next version of the function of that name, which is made if need be."""
        source = source_text(Path(path))
        return self._client.send(calls.upload_function(name, kind, source, description))

    def version(self, reference: str) -> models.FunctionVersion:
        """By name@3, name@latest, or id."""
        return self._client.send(calls.resolve_function(reference))

    def source(self, reference: str) -> bytes:
        """The file of a version, as it was uploaded. Raises OolongError when its sha256 is not the version's."""
        version = self.version(reference)
        return verified(self._client.send(calls.function_source(version.id)), version)


class Projects:
    """The project of the token."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self) -> models.Project:
        return self._client.send(calls.get_project())

    def set_trainer_code(self, allowed: bool) -> models.Project:
        """Whether runs may bring losses of their own, which run inside the trainer."""
        return self._client.send(calls.change_project(trainer_code=allowed))

    def events(self) -> Iterator[models.ProjectEvent]:
        return self._client.pages("project/events", models.ProjectEvent)


class Runs:
    def __init__(self, client: Client) -> None:
        self._client = client

    def list(
        self,
        *,
        status: str | None = None,
        kind: str | None = None,
        name: str | None = None,
        tag: str | None = None,
    ) -> Iterator[models.Run]:
        return self._client.pages("runs", models.Run, status=status, kind=kind, name=name, tag=tag)

    def get(self, run_id: str) -> models.Run:
        return self._client.send(calls.get_run(run_id))

    def validate(self, spec: Mapping[str, Any]) -> models.Validation:
        return self._client.send(calls.validate_run(spec))

    def create(self, spec: Mapping[str, Any]) -> models.Run:
        return self._client.send(calls.create_run(spec))

    def stop(self, run_id: str) -> models.Run:
        """Ask it to take a checkpoint and stop."""
        return self._client.send(calls.stop_run(run_id))

    def cancel(self, run_id: str) -> models.Run:
        return self._client.send(calls.cancel_run(run_id))

    def pause(self, run_id: str) -> models.Run:
        """Ask it to take a checkpoint and give its slots back."""
        return self._client.send(calls.pause_run(run_id))

    def resume(self, run_id: str) -> models.Run:
        """Put a paused run back into the queue; it goes on from its checkpoint."""
        return self._client.send(calls.resume_run(run_id))

    def retry(self, run_id: str) -> models.Run:
        """A new run that goes on from the last checkpoint of a failed or stopped one."""
        return self._client.send(calls.retry_run(run_id))

    def clone(
        self, run_id: str, *, changes: Mapping[str, Any] | None = None, checkpoint: str | None = None
    ) -> models.Run:
        """A new run of the same spec with `changes` merged in; with `checkpoint` (an id or latest) a fork."""
        return self._client.send(calls.clone_run(run_id, changes or {}, checkpoint))

    def change(
        self,
        run_id: str,
        *,
        changes: Mapping[str, Any] | None = None,
        checkpoint: bool = False,
        evaluate: bool = False,
    ) -> models.Run:
        """Change max staleness, concurrency or learning rate of a run that goes on, or ask it to act now."""
        call = calls.change_run(run_id, changes or {}, checkpoint=checkpoint, evaluate=evaluate)
        return self._client.send(call)

    def update(self, run_id: str, **fields: Any) -> models.Run:
        """Change name, notes, tags, or the priority of a run that waits."""
        return self._client.send(calls.update_run(run_id, fields))

    def events(self, run_id: str) -> Iterator[models.RunEvent]:
        return self._client.pages(f"runs/{run_id}/events", models.RunEvent)

    def alerts(self, run_id: str, *, open: bool | None = None) -> Iterator[models.Alert]:
        """What the rules say or said about it; with `open`, only what holds now."""
        query = None if open is None else str(open).lower()
        return self._client.pages(f"runs/{run_id}/alerts", models.Alert, open=query)

    def attempts(self, run_id: str) -> Iterator[models.Attempt]:
        return self._client.pages(f"runs/{run_id}/attempts", models.Attempt)

    def jobs(self, run_id: str) -> Iterator[models.Job]:
        return self._client.pages(f"runs/{run_id}/jobs", models.Job)

    def metrics(
        self,
        run_id: str,
        names: Sequence[str],
        *,
        axis: str | None = None,
        after_x: int | None = None,
        limit: int | None = None,
    ) -> models.Metrics:
        return self._client.send(calls.metrics(run_id, names, axis, after_x, limit))

    def metric_names(self, run_id: str) -> Sequence[models.MetricName]:
        """What was measured, with the last x of each."""
        return self._client.send(calls.metric_names(run_id)).data

    def last_value(self, run_id: str, name: str) -> float | None:
        """The newest attempt's last point of a metric; None when there is none."""
        known = [
            found for found in self.metric_names(run_id) if found.name == name and found.last_x is not None
        ]
        for found in known:
            answer = self.metrics(run_id, [name], axis=found.axis, after_x=(found.last_x or 0) - 1, limit=1)
            last = [series for series in answer.series if series.value]
            if last:
                return max(last, key=lambda series: (series.attempt, series.x[-1])).value[-1]
        return None

    def document(self, run_id: str, name: str) -> models.Document:
        return self._client.send(calls.document(run_id, name))

    def log_files(self, run_id: str) -> Sequence[models.LogFile]:
        return list(self._client.pages(f"runs/{run_id}/logs", models.LogFile))

    def log_part(
        self, run_id: str, file: models.LogFile, *, offset: int = 0, limit: int = 256 * 1024
    ) -> models.LogPart:
        return self._client.send(calls.log_part(run_id, file.job, file.incarnation, offset, limit))

    def stream(self, run_id: str, *, after_seq: int | None = None) -> Iterator[models.Frame]:
        """Points, documents, events, status changes of a run as they come."""
        return self._client.stream(f"run:{run_id}", after_seq=after_seq)

    def wait(
        self,
        run_id: str,
        *,
        timeout_seconds: float | None = None,
        poll_seconds: float = 1.0,
        outage_seconds: float = 300.0,
        on_change: Callable[[models.Run], None] | None = None,
    ) -> models.Run:
        """The run once it has ended, whatever its end, or rests for a fault of its own.

        Raises TimeoutError; bears an outage of the server.
        """
        began = time.monotonic()
        answered = began
        seen: models.Run | None = None
        while True:
            try:
                run = self.get(run_id)
                answered = time.monotonic()
            except (Unreachable, ServerError) as error:
                if time.monotonic() - answered > outage_seconds:
                    raise
                run = None
                last_error: OolongError = error
            if run is not None:
                if run != seen and on_change is not None:
                    on_change(run)
                seen = run
                if run.ended or run.rests:
                    return run
            if timeout_seconds is not None and time.monotonic() - began >= timeout_seconds:
                state = f"is {seen.status}" if seen is not None else f"could not be asked: {last_error}"
                raise TimeoutError(f"run {run_id} {state} after {timeout_seconds:g} s")
            time.sleep(poll_seconds)


class Pool:
    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self) -> models.Pool:
        return self._client.send(calls.get_pool())

    def enrolment_token(self) -> models.EnrolmentToken:
        return self._client.send(calls.create_enrolment_token())

    def cordon(self, node_id: str) -> models.Node:
        return self._client.send(calls.move_node(node_id, "cordon"))

    def uncordon(self, node_id: str) -> models.Node:
        return self._client.send(calls.move_node(node_id, "uncordon"))

    def drain(self, node_id: str) -> models.Node:
        return self._client.send(calls.move_node(node_id, "drain"))


class Tokens:
    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self) -> Iterator[models.Token]:
        return self._client.pages("tokens", models.Token)

    def create(
        self, name: str, *, scopes: Sequence[str], expires_at: str | None = None
    ) -> models.CreatedToken:
        return self._client.send(calls.create_token(name, scopes, expires_at))

    def revoke(self, token_id: str) -> None:
        self._client.send(calls.revoke_token(token_id))


def _document(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None
