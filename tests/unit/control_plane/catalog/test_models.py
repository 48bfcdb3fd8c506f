"""Model archives: what is kept, and every refusal."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from control_plane.catalog import archives, store
from control_plane.catalog.models import BaseModel
from tests.support.archives import sparse
from tests.support.model_files import CONFIG, PARAMETERS, archive, config, files, safetensors, with_header


@pytest.fixture
def alice(person: Any, clock: Any) -> Any:
    """Here she has nothing yet."""
    return person("alice")


def register(alice: Any, data: bytes, name: str = "model") -> Any:
    return alice.post("/models", {"name": name, "upload_id": alice.upload(data, "model")})


def test_a_model_is_kept_with_its_facts_as_a_tar_of_plain_files(alice: Any) -> None:
    reply = register(alice, archive(files()))
    assert reply.status_code == 201, reply.content
    model = reply.json()
    assert (model["family"], model["parameters"], model["config"]) == ("qwen3", PARAMETERS, CONFIG)
    with tarfile.open(Path(store.lend(model["sha256"]))) as tar:
        assert tar.getnames() == ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json"]
        kept = tar.extractfile("model.safetensors")
        assert kept is not None
        assert kept.read() == safetensors()


def test_the_same_files_are_the_same_model_however_they_were_packed(alice: Any) -> None:
    first = register(alice, archive(files()))
    packed = archive(dict(reversed(files().items())), mode="w:gz", prefix="tiny-model/", mtime=99)
    again = register(alice, packed)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    other = register(alice, packed, "another name")
    assert (other.status_code, other.json()["sha256"]) == (201, first.json()["sha256"])


@pytest.mark.parametrize(
    ("contents", "pointer", "code"),
    [
        (files(config__json=None), "/files/config.json", "missing_file"),
        (files(tokenizer__json=None), "/files/tokenizer.json", "missing_file"),
        (files(model__safetensors=None), "/files/model.safetensors", "missing_file"),
        (files(model__safetensors=safetensors(cut=1)), "/files/model.safetensors", "truncated"),
        (files(model__safetensors=safetensors()[:5]), "/files/model.safetensors", "truncated"),
        (files(model__safetensors=safetensors()[:30]), "/files/model.safetensors", "truncated"),
        (files(model__safetensors=safetensors() + b"x"), "/files/model.safetensors", "bad_header"),
        (files(model__safetensors=with_header(b"[]")), "/files/model.safetensors", "bad_header"),
        (files(pytorch_model__bin=b"x"), "/files/pytorch_model.bin", "pickle"),
        (files(training_args__pt=b"x"), "/files/training_args.pt", "pickle"),
        (files(modeling__py=b"import os"), "/files/modeling.py", "code"),
        (files(config__json=b'{"model_type": "x", "auto_map": {}}'), "/files/config.json", "auto_map"),
        (files(tokenizer_config__json=b'{"auto_map": {}}'), "/files/tokenizer_config.json", "auto_map"),
        (files(config__json=b"{"), "/files/config.json", "not_json"),
        (files(config__json=b"{}"), "/files/config.json", "no_model_type"),
        (files(tokenizer__json=b"[" * 100_000), "/files/tokenizer.json", "not_json"),
        (files(model__safetensors=with_header(b"[" * 100_000)),
         "/files/model.safetensors", "bad_header"),
        ({**files(config__json=None), "model.safetensors.index.json": b'{"weight_map": [["w"]]}'},
         "/files/config.json", "missing_file"),
        ({**files(), "model.safetensors.index.json": b'{"weight_map": {"w": "model-00002.safetensors"}}'},
         "/files/model-00002.safetensors", "missing_file"),
    ],
)  # fmt: skip
def test_an_unusable_model_is_refused_by_file(
    alice: Any, contents: dict[str, bytes], pointer: str, code: str, tmp_path: Path
) -> None:
    reply = register(alice, archive(contents))
    assert (reply.status_code, reply.json()["code"]) == (422, "model_unusable")
    assert {"pointer": pointer, "code": code} in [
        {"pointer": error["pointer"], "code": error["code"]} for error in reply.json()["errors"]
    ]
    assert BaseModel.objects.filter(source="upload").count() == 0
    assert not list((tmp_path / "tmp").iterdir())


def test_all_faults_of_a_model_are_told_at_once(alice: Any) -> None:
    reply = register(alice, archive({"pytorch_model.bin": b"x"}))
    assert {error["code"] for error in reply.json()["errors"]} == {"pickle", "missing_file"}
    assert len(reply.json()["errors"]) == 4


def test_what_the_config_and_the_template_say_is_checked_too(alice: Any) -> None:
    reply = register(alice, archive(files(config__json=config(vocab_size=9))))
    (fault,) = reply.json()["errors"]
    assert (reply.status_code, fault["pointer"]) == (422, "/tensors/model.embed_tokens.weight")
    assert fault["message"].endswith("has shape [8, 4], by config.json it has [9, 4]")
    reply = register(alice, archive(files(chat_template__jinja=b"{{ ''.__class__.__mro__ }}")))
    assert (reply.status_code, reply.json()["errors"][0]["code"]) == (422, "template_forbidden")


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        tar.addfile(info)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (member("../outside.json"), "unsafe_name"),
        (member("a/../../outside.json"), "unsafe_name"),
        (member("/etc/passwd"), "unsafe_name"),
        (member("config.json", tarfile.SYMTYPE, "/etc/passwd"), "not_a_file"),
        (member("config.json", tarfile.LNKTYPE, "other"), "not_a_file"),
        (member("pipe", tarfile.FIFOTYPE), "not_a_file"),
        (member("disk", tarfile.CHRTYPE), "not_a_file"),
        (archive(files()) and b"not a tar at all" * 100, "not_an_archive"),
        (archive(files())[:700], "not_an_archive"),
    ],
)
def test_a_hostile_or_broken_archive_is_refused_before_it_is_unpacked(
    alice: Any, data: bytes, code: str, tmp_path: Path
) -> None:
    reply = register(alice, data)
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["code"] == code
    assert not (tmp_path.parent / "outside.json").exists()
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_a_small_archive_that_unfolds_to_a_large_one_is_refused(
    alice: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str
) -> None:
    monkeypatch.setattr(archives, "SMALL_BYTES", 1024**2)
    reply = register(alice, archive(files(**{"model.safetensors": bytes(8 * 1024**2)}), mode=mode))
    assert (reply.status_code, reply.json()["errors"][0]["code"]) == (422, "too_large")
    assert not list((tmp_path / "tmp").iterdir())
    assert register(alice, archive(files(), mode=mode)).status_code == 201, "an honest one is taken"


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_a_sparse_file_of_an_archive_is_refused_before_its_holes_are_written(
    alice: Any, tmp_path: Path, form: str
) -> None:
    data = sparse("model.safetensors", 64 * 1024**2, form=form)
    assert len(data) == 10_240
    reply = register(alice, data)
    assert (reply.status_code, reply.json()["errors"][0]["code"]) == (422, "sparse")
    assert "pack it without --sparse" in reply.json()["errors"][0]["message"]
    assert not list((tmp_path / "tmp").iterdir())


def test_headers_of_an_archive_count_as_well(alice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member's extended header is read as a whole, and may say that it has gigabytes."""
    monkeypatch.setattr(archives, "SMALL_BYTES", 1024**2)
    info = tarfile.TarInfo("x")
    info.pax_headers = {"comment": "x" * (8 * 1024**2)}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info)
    reply = register(alice, buffer.getvalue())
    assert (reply.status_code, reply.json()["errors"][0]["code"]) == (422, "too_large")


def test_a_path_is_taken_as_declared_and_an_odd_one_refused(alice: Any) -> None:
    assert alice.post("/models", {"name": "tiny", "path": "/models/tiny"}).status_code == 201
    again = alice.post("/models", {"name": "tiny", "path": "/models/tiny"})
    assert (again.status_code, again.json()["source"], again.json()["parameters"]) == (200, "path", None)
    for path in ("models/tiny", "/models/../etc"):
        assert alice.post("/models", {"name": "x", "path": path}).status_code == 422
    assert alice.post("/models", {"name": "x", "path": "/m", "upload_id": "upl_x"}).status_code == 422
