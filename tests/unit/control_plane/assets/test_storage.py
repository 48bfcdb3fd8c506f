"""One contract, two storages: a directory, and a bucket behind a real HTTP S3 API in this process."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from control_plane.assets.models import Upload
from control_plane.assets.storage import multipart, store
from control_plane.assets.storage import s3 as s3_module
from control_plane.assets.storage.address import BadAddress, LocalAddress, S3Address, read_address
from control_plane.assets.storage.blob import Blob, PartsGone, Storage, StorageUnavailable
from control_plane.assets.storage.local import LocalStorage
from control_plane.assets.storage.s3 import S3Storage
from tests.support.ports import reserve_port

PIECE = b"a" * (5 * 1024 * 1024)


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> S3Address:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    urllib.request.urlopen(urllib.request.Request(f"{s3_endpoint}/moto-api/reset", method="POST")).read()
    boto3.client("s3", endpoint_url=s3_endpoint, region_name="us-east-1").create_bucket(Bucket="files")
    return S3Address("files", "oolong/", s3_endpoint, None)


@pytest.fixture(params=["local", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return LocalStorage(tmp_path / "root")
    return S3Storage(request.getfixturevalue("bucket"))


@pytest.fixture
def keep(storage: Storage, tmp_path: Path) -> Callable[[bytes], Blob]:
    def publish(data: bytes) -> Blob:
        (tmp_path / "root" / "blobs").mkdir(parents=True, exist_ok=True)
        path, blob = tmp_path / "root" / "new", Blob.of(data)
        path.write_bytes(data)
        storage.publish(path, blob)
        assert not path.exists()
        return blob

    return publish


def test_a_blob_is_there_whole_can_be_read_anywhere_and_deleted_twice(storage: Storage, keep: Any) -> None:
    blob = keep(b"0123456789" * 1000)
    assert storage.has(blob.sha256) and storage.size(blob.sha256) == 10_000
    with storage.open(blob.sha256) as file:
        assert file.read(3) == b"012"
        assert file.seek(-5, io.SEEK_END) == 9_995
        assert file.read() == b"56789" and file.read() == b""
        file.seek(7)
        assert (file.read(2), file.tell()) == (b"78", 9)
    storage.delete(blob.sha256)
    storage.delete(blob.sha256)
    assert not storage.has(blob.sha256)
    for ask in (storage.size, storage.open):
        with pytest.raises(FileNotFoundError):
            ask(blob.sha256)


def test_a_file_of_another_file_system_is_copied_and_appears_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, path, blob = LocalStorage(tmp_path / "root"), tmp_path / "new", Blob.of(b"abc")
    path.write_bytes(b"abc")
    moved = os.rename

    def rename(source: Path, target: Path) -> Path:
        if source == path:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        moved(source, target)
        return target

    monkeypatch.setattr(Path, "rename", rename)
    storage.publish(path, blob)
    assert not path.exists() and list((tmp_path / "root" / "tmp").iterdir()) == []
    with storage.open(blob.sha256) as file:
        assert file.read() == b"abc"
    assert [listed.sha256 for listed in storage.listed()] == [blob.sha256]


def test_validations_work_on_the_file_system_of_the_store(tmp_path: Path, settings: Any) -> None:
    """What they leave is published by its name alone, whatever its size."""
    url = (tmp_path / "elsewhere").as_uri()
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, storage_url=url)
    assert store.validation_folder("dsv_1") == tmp_path / "elsewhere" / "validations" / "dsv_1"


def test_a_storage_says_whose_it_is_and_when_a_blob_was_written(storage: Storage, keep: Any) -> None:
    blob = keep(b"one")
    assert abs(datetime.now(UTC) - storage.touched_at(blob.sha256)) < timedelta(minutes=5)
    with pytest.raises(FileNotFoundError):
        storage.touched_at("0" * 64)
    assert storage.owner() == ""
    for owner in ("7301/16384", "7301/5"):
        storage.set_owner(owner)
        assert storage.owner() == owner
    assert [found.sha256 for found in storage.listed()] == [blob.sha256], "it is no blob"


def test_an_empty_blob_is_one_too(storage: Storage, keep: Any) -> None:
    with storage.open(keep(b"").sha256) as file:
        assert file.read() == b""


def test_what_is_lent_is_read_without_a_credential(storage: Storage, keep: Any) -> None:
    lent = storage.lend(keep(b"rows").sha256)
    data = urllib.request.urlopen(lent).read() if lent.startswith("http") else Path(lent).read_bytes()
    assert data == b"rows"


@pytest.mark.parametrize("name", ["../../etc/passwd", "A" * 64, "ab"])
def test_what_is_no_hash_is_no_name(storage: Storage, name: str) -> None:
    with pytest.raises(ValueError, match="is not a SHA-256"):
        storage.has(name)


def test_parts_in_any_order_are_joined_and_the_last_may_be_small(storage: Storage) -> None:
    assert storage.received_parts("u") == []
    for number, data in ((2, b"end"), (0, b"x" * len(PIECE)), (1, PIECE), (0, PIECE)):
        storage.put_part("u", number, data)
    assert storage.received_parts("u") == [0, 1, 2]
    whole = PIECE + PIECE + b"end"
    assert storage.join_parts("u", 3) == Blob.of(whole)
    with storage.open(Blob.of(whole).sha256) as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == Blob.of(whole).sha256  # type: ignore[arg-type]
    storage.drop_parts("u")
    assert storage.received_parts("u") == []


def test_parts_dropped_during_upload_are_reported_and_leave_no_blob(storage: Storage) -> None:
    storage.put_part("u", 0, PIECE)
    with pytest.raises(PartsGone):
        storage.join_parts("u", 2)
    assert not storage.has(Blob.of(PIECE).sha256)


def test_what_nobody_finished_is_cleaned_up_and_what_is_young_stays(storage: Storage) -> None:
    storage.put_part("u", 0, b"x")
    now = datetime.now(UTC)
    assert storage.drop_unfinished(before=now - timedelta(hours=1)) == 0
    assert storage.drop_unfinished(before=now + timedelta(hours=1)) == 1
    assert storage.received_parts("u") == []


def test_a_storage_that_works_passes_its_check(storage: Storage) -> None:
    storage.check()


# --- only S3 can fail like this ---------------------------------------------------------------------------


def test_a_join_that_fails_in_the_middle_leaves_no_blob_and_no_open_upload(
    bucket: S3Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = S3Storage(bucket)
    for number in range(2):
        storage.put_part("u", number, PIECE)

    def fail(**_: Any) -> Any:
        raise s3_module.ClientError({"Error": {"Code": "SlowDown"}}, "UploadPartCopy")

    monkeypatch.setattr(storage._client, "upload_part_copy", fail)
    with pytest.raises(StorageUnavailable, match="SlowDown to UploadPartCopy"):
        storage.join_parts("u", 2)
    assert not storage.has(Blob.of(PIECE * 2).sha256)
    assert storage.drop_unfinished(before=datetime.now(UTC) + timedelta(hours=1)) == 1, "only the parts"


def test_a_blob_in_pieces_is_visible_only_when_whole(
    bucket: S3Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_module, "PIECE_BYTES", len(PIECE))
    storage = S3Storage(bucket)
    path = tmp_path / "big"
    path.write_bytes(PIECE + b"rest")
    blob = Blob.of(PIECE + b"rest")
    plain = storage._client.complete_multipart_upload

    def watched(**given: Any) -> Any:
        assert not storage.has(blob.sha256), "not by halves"
        return plain(**given)

    monkeypatch.setattr(storage._client, "complete_multipart_upload", watched)
    storage.publish(path, blob)
    assert storage.size(blob.sha256) == blob.bytes


def test_a_multipart_upload_of_a_process_that_died_is_aborted(bucket: S3Address) -> None:
    storage = S3Storage(bucket)
    storage._client.create_multipart_upload(Bucket="files", Key=f"oolong/blobs/aa/{'a' * 64}")
    later = datetime.now(UTC) + timedelta(hours=1)
    assert storage.drop_unfinished(before=later) == 1
    assert storage.drop_unfinished(before=later) == 0


def test_a_bucket_that_is_not_there_is_named_plainly(bucket: S3Address) -> None:
    with pytest.raises(StorageUnavailable, match="there is no such bucket; make it, or correct STORAGE_URL"):
        S3Storage(replace(bucket, bucket="other")).check()


@pytest.mark.parametrize(
    ("code", "way_out"),
    [("InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"), ("SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
     ("AccessDenied", "list, read, write and delete")],
)  # fmt: skip
def test_wrong_credentials_are_reported_with_the_way_out(
    bucket: S3Address, monkeypatch: pytest.MonkeyPatch, code: str, way_out: str
) -> None:
    storage = S3Storage(bucket)

    def refuse(**_: Any) -> Any:
        raise s3_module.ClientError({"Error": {"Code": code}}, "HeadBucket")

    monkeypatch.setattr(storage._client, "head_bucket", refuse)
    with pytest.raises(StorageUnavailable, match=way_out):
        storage.check()


def test_missing_credentials_are_reported(bucket: S3Address, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(StorageUnavailable, match="no credentials; set AWS_ACCESS_KEY_ID"):
        S3Storage(bucket).check()


def test_a_storage_that_never_answers_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        storage = S3Storage(S3Address("files", "", endpoint, None), read_seconds=0.2, tries=1)
        with pytest.raises(StorageUnavailable, match="s3://files/ at http"):
            storage.check()


# --- the address ------------------------------------------------------------------------------------------


def test_the_address_says_where(tmp_path: Path) -> None:
    assert read_address("", data_dir=tmp_path) == LocalAddress(tmp_path)
    assert read_address("file:///srv/oolong", data_dir=tmp_path) == LocalAddress(Path("/srv/oolong"))
    found = read_address("s3://files/a/b?endpoint=https://s3.example.org&region=eu-1", data_dir=tmp_path)
    assert found == S3Address("files", "a/b/", "https://s3.example.org", "eu-1")
    assert read_address("s3://files", data_dir=tmp_path) == S3Address("files", "", None, None)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://x/y", "say file:///"),
        ("file://host/x", "say file:///"),
        ("s3://", "no bucket's name"),
        ("s3://Bad_Name", "no bucket's name"),
        ("s3://key:secret@files", "holds a key"),
        ("s3://files?ssl=no", "'ssl' is not known"),
        ("s3://files?endpoint=minio:9000", "is not http"),
    ],
)
def test_an_odd_address_is_refused_with_an_example(url: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadAddress, match=said) as refusal:
        read_address(url, data_dir=tmp_path)
    assert "secret" not in str(refusal.value)


# --- through the API --------------------------------------------------------------------------------------


def test_uploads_and_downloads_of_the_api_go_to_the_bucket(
    alice: Any, bucket: S3Address, settings: Any, tmp_path: Path, quick_validations: None, clock: Any
) -> None:
    url = f"s3://{bucket.bucket}/oolong?endpoint={bucket.endpoint}"
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, storage_url=url)
    made = alice.dataset("in-a-bucket")
    assert made.status_code == 201, made.content
    rows = alice.get(f"/dataset-versions/{made.json()['id']}/rows?limit=2").json()["data"]
    assert [row["row"] for row in rows] == [0, 1]
    whole = b"p" * (multipart.PART_BYTES + 5)
    announced = {"filename": "f", "purpose": "dataset", "bytes": len(whole), "sha256": Blob.of(whole).sha256}
    session = alice.post("/upload-sessions", announced).json()
    for number in range(2):
        data = whole[multipart.PART_BYTES * number : multipart.PART_BYTES * (number + 1)]
        headers = {"X-Part-SHA256": Blob.of(data).sha256}
        sent = alice.call("PUT", f"/upload-sessions/{session['id']}/parts/{number}", data, **headers)
        assert sent.status_code == 200, sent.content
    upload = alice.post(f"/upload-sessions/{session['id']}/complete").json()
    assert upload["sha256"] == Blob.of(whole).sha256
    assert store.size_of(upload["sha256"]) == len(whole)
    assert not (tmp_path / "blobs" / upload["sha256"][:2]).exists(), "nothing of it on this disk"


def test_a_storage_that_is_away_is_503_and_leaves_no_row(
    alice: Any, bucket: S3Address, settings: Any, tmp_path: Path
) -> None:
    url = f"s3://files?endpoint=http://127.0.0.1:{reserve_port()}"
    settings.ENVIRONMENT = replace(settings.ENVIRONMENT, storage_url=url)
    before = Upload.objects.count()
    reply = alice.post("/uploads?filename=f&purpose=dataset", b"{}")
    assert (reply.status_code, reply.json()["code"]) == (503, "storage_unavailable")
    assert reply["Retry-After"] == "5" and "try again later" in reply.json()["detail"]
    assert Upload.objects.count() == before
    assert not list((tmp_path / "tmp").iterdir()), "no temporary file stays"


@pytest.mark.django_db(transaction=True)
def test_bytes_referenced_during_deletion_stay(alice: Any) -> None:
    """The one who frees waits for the transaction of the one who names."""
    from django.db import connection, transaction

    blob = store.put([b"the same bytes"])
    freed: list[bool] = []

    def free() -> None:
        try:
            freed.append(store.delete_if_unreferenced(blob.sha256))
        finally:
            connection.close()

    with transaction.atomic():
        store.lock_blob(blob.sha256)
        other = threading.Thread(target=free)
        other.start()
        named = Upload.objects.create(
            project=alice.project, created_by=alice.user, filename="f", purpose="dataset", bytes=blob.bytes,
            sha256=blob.sha256,
        )  # fmt: skip
    other.join(60)
    assert freed == [False] and store.has_blob(blob.sha256)
    named.delete()
    assert store.delete_if_unreferenced(blob.sha256) and not store.has_blob(blob.sha256)
    with pytest.raises(Exception, match="were freed at this very moment"), transaction.atomic():
        store.lock_blob(blob.sha256)
