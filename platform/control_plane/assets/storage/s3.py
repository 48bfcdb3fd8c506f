"""A bucket that speaks S3: `blobs/ab/<sha256>`, and `parts/<upload>/<number>` until they are joined.

A blob becomes visible by one finished PUT or one completed multipart upload, so never by halves. Parts are hashed
by reading them back, then copied inside the bucket: what was verified is what is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any, cast

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from control_plane.assets.storage.address import S3Address
from control_plane.assets.storage.blob import (
    CHUNK,
    OWNER,
    Blob,
    ListedBlob,
    PartsGone,
    StorageUnavailable,
    check_name,
)
from control_plane.assets.storage.s3_reader import S3Reader, buffered
from control_plane.core.infra.ids import new_id

CONNECT_SECONDS, READ_SECONDS, TRIES = 5, 30, 3
LENT_SECONDS = 3600
PIECE_BYTES = 64 * 1024 * 1024  # of a blob that goes up in pieces: 10,000 of them are 640 GB
SMALLEST_COPY = 5 * 1024 * 1024  # S3 takes no smaller piece but the last
MOST_PIECES = 10_000
MISSING = {"404", "NoSuchKey", "NoSuchUpload", "NotFound"}
SAID = {
    "InvalidAccessKeyId": "the access key is not known there; check AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret does not belong to the access key; check AWS_SECRET_ACCESS_KEY",
    "AccessDenied": "access is denied; the key needs to list, read, write and delete in the bucket",
    "NoSuchBucket": "there is no such bucket; make it, or correct STORAGE_URL",
    "403": "access is denied; check the access key, its secret and what it may do in the bucket",
}


class S3Storage:
    def __init__(self, address: S3Address, *, read_seconds: float = READ_SECONDS, tries: int = TRIES) -> None:
        self._address = address
        self._client: Any = boto3.Session().client(
            "s3",
            endpoint_url=address.endpoint,
            region_name=address.region or "us-east-1",
            config=Config(
                connect_timeout=CONNECT_SECONDS, read_timeout=read_seconds,
                retries={"total_max_attempts": tries, "mode": "standard"}, signature_version="s3v4",
                s3={"addressing_style": "path" if address.endpoint else "auto"},
            ),
        )  # fmt: skip

    def publish(self, path: Path, blob: Blob) -> None:
        config = TransferConfig(
            multipart_threshold=PIECE_BYTES, multipart_chunksize=PIECE_BYTES, use_threads=False
        )
        with path.open("rb") as file, self._asked():
            self._client.upload_fileobj(
                file, self._address.bucket, self._blob(blob.sha256), Config=config,
                ExtraArgs={"Metadata": {"sha256": blob.sha256}},
            )  # fmt: skip
        path.unlink()

    def has(self, sha256: str) -> bool:
        try:
            self.size(sha256)
        except FileNotFoundError:
            return False
        return True

    def size(self, sha256: str) -> int:
        with self._asked():
            return int(self._client.head_object(**self._at(self._blob(sha256)))["ContentLength"])

    def open(self, sha256: str) -> IO[bytes]:
        size = self.size(sha256)
        return buffered(S3Reader(self._client, self._asked, self._at(self._blob(sha256)), size))

    def lend(self, sha256: str) -> str:
        return cast(
            "str",
            self._client.generate_presigned_url(
                "get_object", Params=self._at(self._blob(sha256)), ExpiresIn=LENT_SECONDS
            ),
        )

    def delete(self, sha256: str) -> None:
        with self._asked():
            self._client.delete_object(**self._at(self._blob(sha256)))

    def listed(self) -> Iterator[ListedBlob]:
        for item in self._list("blobs/"):
            yield ListedBlob(item["Key"].rpartition("/")[2], int(item["Size"]), item["LastModified"])

    def touched_at(self, sha256: str) -> datetime:
        with self._asked():
            return cast("datetime", self._client.head_object(**self._at(self._blob(sha256)))["LastModified"])

    def owner(self) -> str:
        try:
            return b"".join(self._chunks(f"{self._address.prefix}{OWNER}")).decode()
        except FileNotFoundError:
            return ""

    def set_owner(self, owner: str) -> None:
        with self._asked():
            self._client.put_object(**self._at(f"{self._address.prefix}{OWNER}"), Body=owner.encode())

    def put_part(self, upload_id: str, number: int, data: bytes) -> None:
        with self._asked():
            self._client.put_object(**self._at(self._part(upload_id, number)), Body=data)

    def received_parts(self, upload_id: str) -> list[int]:
        keys = [item["Key"] for item in self._list(f"parts/{upload_id}/")]
        return sorted(int(name) for key in keys if (name := key.rpartition("/")[2]).isdecimal())

    def join_parts(self, upload_id: str, count: int) -> Blob:
        digest, size, smallest = hashlib.sha256(), 0, SMALLEST_COPY
        try:
            for number in range(count):
                read = 0
                for chunk in self._chunks(self._part(upload_id, number)):
                    digest.update(chunk)
                    read += len(chunk)
                size += read
                smallest = smallest if number == count - 1 else min(smallest, read)
            blob = Blob(digest.hexdigest(), size)
            if count == 1:
                self._copy_one(self._part(upload_id, 0), blob)
            elif smallest >= SMALLEST_COPY and count <= MOST_PIECES:
                self._copy_pieces(upload_id, count, blob)
            else:
                raise ValueError(
                    f"upload {upload_id}: {count} parts of {smallest} bytes or more cannot be joined by S3"
                )
        except FileNotFoundError as error:
            raise PartsGone(upload_id) from error
        return blob

    def drop_parts(self, upload_id: str) -> None:
        self._delete_all([item["Key"] for item in self._list(f"parts/{upload_id}/")])

    def drop_unfinished(self, *, before: datetime) -> int:
        newest: dict[str, datetime] = {}
        keys: dict[str, list[str]] = {}
        for item in self._list("parts/"):
            upload = item["Key"].rpartition("/")[0]
            keys.setdefault(upload, []).append(item["Key"])
            newest[upload] = max(newest.get(upload, item["LastModified"]), item["LastModified"])
        stale = [upload for upload, touched in newest.items() if touched < before]
        for upload in stale:
            self._delete_all(keys[upload])
        return len(stale) + self._abort_multiparts(before=before)

    def check(self) -> None:
        """Write, read and delete one small object."""
        key = f"{self._address.prefix}tmp/{new_id('tmp')}"
        try:
            with self._asked():
                self._client.head_bucket(Bucket=self._address.bucket)
        except FileNotFoundError as error:
            raise StorageUnavailable(f"{self._address}: {SAID['NoSuchBucket']}") from error
        with self._asked():
            self._client.put_object(**self._at(key), Body=b"oolong")
            self._client.get_object(**self._at(key))["Body"].read()
            self._client.delete_object(**self._at(key))

    def _copy_one(self, key: str, blob: Blob) -> None:
        with self._asked():
            self._client.copy_object(
                **self._at(self._blob(blob.sha256)),
                CopySource={"Bucket": self._address.bucket, "Key": key},
                Metadata={"sha256": blob.sha256}, MetadataDirective="REPLACE",
            )  # fmt: skip

    def _copy_pieces(self, upload_id: str, count: int, blob: Blob) -> None:
        target = self._at(self._blob(blob.sha256))
        with self._asked():
            begun = self._client.create_multipart_upload(**target, Metadata={"sha256": blob.sha256})
        known = {**target, "UploadId": begun["UploadId"]}
        try:
            pieces = []
            for number in range(count):
                source = {"Bucket": self._address.bucket, "Key": self._part(upload_id, number)}
                with self._asked():
                    copied = self._client.upload_part_copy(**known, PartNumber=number + 1, CopySource=source)
                pieces.append({"PartNumber": number + 1, "ETag": copied["CopyPartResult"]["ETag"]})
            with self._asked():
                self._client.complete_multipart_upload(**known, MultipartUpload={"Parts": pieces})
        except BaseException:
            with self._asked():
                self._client.abort_multipart_upload(**known)
            raise

    def _abort_multiparts(self, *, before: datetime) -> int:
        dropped = 0
        with self._asked():
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._address.bucket, Prefix=f"{self._address.prefix}blobs/"
            )
            for page in pages:
                for found in page.get("Uploads", []):
                    if found["Initiated"] < before:
                        self._client.abort_multipart_upload(
                            **self._at(found["Key"]), UploadId=found["UploadId"]
                        )
                        dropped += 1
        return dropped

    def _chunks(self, key: str) -> Iterator[bytes]:
        with self._asked():
            yield from self._client.get_object(**self._at(key))["Body"].iter_chunks(CHUNK)

    def _list(self, prefix: str) -> list[dict[str, Any]]:
        with self._asked():
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._address.bucket, Prefix=f"{self._address.prefix}{prefix}"
            )
            return [item for page in pages for item in page.get("Contents", [])]

    def _delete_all(self, keys: list[str]) -> None:
        for first in range(0, len(keys), 1000):
            objects = [{"Key": key} for key in keys[first : first + 1000]]
            with self._asked():
                self._client.delete_objects(
                    Bucket=self._address.bucket, Delete={"Objects": objects, "Quiet": True}
                )

    def _blob(self, sha256: str) -> str:
        return f"{self._address.prefix}blobs/{check_name(sha256)[:2]}/{sha256}"

    def _part(self, upload_id: str, number: int) -> str:
        return f"{self._address.prefix}parts/{upload_id}/{number}"

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._address.bucket, "Key": key}

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """Turns what the client raises into FileNotFoundError or StorageUnavailable."""
        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in MISSING:
                raise FileNotFoundError(f"{self._address} has no such object") from error
            why = SAID.get(code, f"it answers {code} to {error.operation_name}")
            raise StorageUnavailable(f"{self._address}: {why}") from error
        except NoCredentialsError as error:
            why = (
                "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role"
            )
            raise StorageUnavailable(f"{self._address}: {why}") from error
        except (BotoCoreError, OSError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            raise StorageUnavailable(f"{self._address}: {error}") from error
