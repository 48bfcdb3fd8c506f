"""Model archives: what is kept, and every refusal."""

from __future__ import annotations

import errno
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded

from control_plane.assets.base_models import archives
from control_plane.assets.base_models.model_check_services import (
    LONGEST,
    advance_model_checks,
)
from control_plane.assets.storage import store
from oolong.client.directory_tar import DirectoryTar
from oolong.model_validation import InvalidModel
from tests.support.archives import sparse
from tests.support.model_files import CONFIG, PARAMETERS, archive, config, files, safetensors, with_header
from tests.unit.control_plane.conftest import _without_processes, check_models_here


def register(alice: Any, data: bytes, name: str = "model") -> Any:
    """The model when its check has ended."""
    return alice.model(name, data).json()


def test_model_is_stored_with_its_facts_as_a_tar_of_plain_files(alice: Any) -> None:
    model = register(alice, archive(files()))
    assert (model["state"], model["ref"], model["errors"]) == ("READY", "model@1", [])
    assert (model["family"], model["parameters"], model["config"]) == ("qwen3", PARAMETERS, CONFIG)
    assert (model["tensors"], model["tokens"], model["dtypes"]) == (13, 3, {"F32": PARAMETERS})
    assert model["prompt"].endswith("<user>And twice that?<assistant>")
    assert [file["name"] for file in model["files"]] == sorted(files())
    with tarfile.open(Path(store.presign(model["sha256"]))) as tar:
        assert tar.getnames() == ["chat_template.jinja", "config.json", "model.safetensors", "tokenizer.json"]
        kept = tar.extractfile("model.safetensors")
        assert kept is not None
        assert kept.read() == safetensors()


def test_a_model_is_validating_until_a_process_has_looked_at_it(alice: Any, clock: Any) -> None:
    upload = alice.upload(archive(files()), "model")
    asked = alice.post("/models", {"name": "model", "upload_id": upload})
    assert (asked.status_code, asked.json()["state"], asked.json()["number"]) == (201, "VALIDATING", None)
    again = alice.post("/models", {"name": "model", "upload_id": upload})
    assert (again.status_code, again.json()["id"]) == (200, asked.json()["id"])
    spec = alice.spec(model={"base_model": "model"})
    told = {error["pointer"]: error for error in alice.post("/runs", {"spec": spec}).json()["errors"]}
    assert told["/model/base_model"]["code"] == "not_validated"
    assert alice.call("DELETE", f"/models/{asked.json()['id']}").status_code == 409
    check_models_here()
    assert alice.get(f"/models/{asked.json()['id']}").json()["state"] == "READY"
    assert alice.post("/models", {"name": "model", "upload_id": upload}).json()["ref"] == "model@1"


def test_the_same_files_are_the_same_version_however_they_were_packed(alice: Any) -> None:
    first = register(alice, archive(files()))
    packed = archive(dict(reversed(files().items())), mode="w:gz", prefix="tiny-model/", mtime=99)
    again = register(alice, packed)
    assert (again["state"], again["same_as"], again["number"]) == ("DUPLICATE", first["id"], None)
    assert alice.get(f"/models/resolve?ref={again['id']}").json() == first
    other = register(alice, packed, "another name")
    assert (other["ref"], other["sha256"]) == ("another name@1", first["sha256"])


def test_versions_of_a_name_have_numbers_and_references(alice: Any, person: Any) -> None:
    first = register(alice, archive(files()))
    register(alice, archive(files(model__safetensors=b"no")))  # which is no version
    second = register(alice, archive(files(generation_config__json=b"{}")))
    assert (first["ref"], second["ref"]) == ("model@1", "model@2")
    for reference, model in (
        ("model@1", first), ("model@2", second), ("model", second), ("model@latest", second), (first["id"], first),
    ):  # fmt: skip
        assert alice.get(f"/models/resolve?ref={reference}").json() == model, reference
    for reference in ("model@3", "model@x", "nobody", ""):
        assert alice.get(f"/models/resolve?ref={reference}").status_code == 404, reference
    charlie = person("charlie", team="blue")
    assert charlie.get("/models/resolve?ref=model@1").status_code == 404


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
    model = register(alice, archive(contents))
    assert (model["state"], model["number"], model["sha256"]) == ("INVALID", None, "")
    assert {"pointer": pointer, "code": code} in [
        {"pointer": error["pointer"], "code": error["code"]} for error in model["errors"]
    ]
    assert model["message"]
    assert not list((tmp_path / "validations").iterdir()), "nothing of it stays"


def test_an_unusable_model_starts_no_run_and_is_removed(alice: Any) -> None:
    model = register(alice, archive(files(model__safetensors=b"no")))
    spec = alice.spec(model={"base_model": model["id"]})
    told = {error["pointer"]: error for error in alice.post("/runs", {"spec": spec}).json()["errors"]}
    assert told["/model/base_model"]["code"] == "model_invalid"
    assert "truncated" in told["/model/base_model"]["message"]
    assert alice.call("DELETE", f"/models/{model['id']}").status_code == 204
    assert alice.get(f"/models/{model['id']}").status_code == 404
    good = register(alice, archive(files()))
    refusal = alice.call("DELETE", f"/models/{good['id']}")
    assert (refusal.status_code, refusal.json()["code"]) == (409, "in_use")


def test_all_errors_of_a_model_are_reported_at_once(alice: Any) -> None:
    model = register(alice, archive({"pytorch_model.bin": b"x"}))
    assert {error["code"] for error in model["errors"]} == {"pickle", "missing_file"}
    assert len(model["errors"]) == 4


def test_what_the_config_and_the_template_say_is_checked_too(alice: Any) -> None:
    (fault,) = register(alice, archive(files(config__json=config(vocab_size=9))))["errors"]
    assert fault["pointer"] == "/tensors/model.embed_tokens.weight"
    assert fault["message"].endswith("has shape [8, 4], by config.json it has [9, 4]")
    model = register(alice, archive(files(chat_template__jinja=b"{{ ''.__class__.__mro__ }}")))
    assert model["errors"][0]["code"] == "template_forbidden"


def test_an_archive_that_is_never_stored_ends_the_check(alice: Any, clock: Any) -> None:
    def over(path: Path, blob: store.Blob) -> None:
        raise SoftTimeLimitExceeded

    asked = alice.post(
        "/models", {"name": "m", "upload_id": alice.upload(archive(files(), mode="w:gz"), "model")}
    ).json()
    with pytest.MonkeyPatch.context() as patch:
        _without_processes(patch)
        patch.setattr(store, "move_in", over)
        advance_model_checks(now=clock.now)
        with pytest.raises(SoftTimeLimitExceeded):
            advance_model_checks(now=clock.now)
        assert alice.get(f"/models/{asked['id']}").json()["state"] == "VALIDATING"
        advance_model_checks(now=clock.forward(2 * LONGEST.total_seconds() + 1))
    (fault,) = alice.get(f"/models/{asked['id']}").json()["errors"]
    assert (fault["code"], fault["message"].split(" took")[0]) == (
        "took_too_long",
        "storing its result",
    )


def test_tar_from_the_sdk_is_stored_unchanged(
    alice: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    for name, data in {**files(), "z.txt": b"z", "a/b.txt": b"b", "a.txt": b"a", "a-b/c.txt": b"c"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    monkeypatch.setattr(store, "move_in", None)  # nothing is stored again
    tar = DirectoryTar(folder)
    model = register(alice, tar.read(0, tar.size))
    assert (model["state"], model["sha256"], model["errors"]) == ("READY", tar.sha256(), [])
    assert store.size_of(model["sha256"]) == model["bytes"] == tar.size


def test_a_full_disk_is_not_the_archives_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(archives, "_extract_members", full)
    data = archive(files())
    number = errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        archives.extract(io.BytesIO(data), tmp_path, packed_bytes=len(data))
    number = errno.ENAMETOOLONG
    with pytest.raises(InvalidModel, match="not a readable tar archive"):
        archives.extract(io.BytesIO(data), tmp_path, packed_bytes=len(data))


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
        (member("\udcff.json", tarfile.SYMTYPE, "other"), "not_a_file"),  # a name that is no text
        (member("pipe", tarfile.FIFOTYPE), "not_a_file"),
        (member("disk", tarfile.CHRTYPE), "not_a_file"),
        (archive(files()) and b"not a tar at all" * 100, "not_an_archive"),
        (archive(files())[:700], "not_an_archive"),
    ],
)
def test_a_hostile_or_broken_archive_is_refused_before_it_is_unpacked(
    alice: Any, data: bytes, code: str, tmp_path: Path
) -> None:
    model = register(alice, data)
    assert (model["state"], model["errors"][0]["code"]) == ("INVALID", code)
    assert not (tmp_path.parent / "outside.json").exists()
    assert not list((tmp_path / "validations").iterdir())


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_a_small_archive_that_unfolds_to_a_large_one_is_refused(
    alice: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: str
) -> None:
    monkeypatch.setattr(archives, "SMALL_BYTES", 1024**2)
    model = register(alice, archive(files(**{"model.safetensors": bytes(8 * 1024**2)}), mode=mode))
    assert (model["state"], model["errors"][0]["code"]) == ("INVALID", "too_large")
    assert not list((tmp_path / "validations").iterdir())
    assert register(alice, archive(files(), mode=mode))["state"] == "READY", "an honest one is taken"


@pytest.mark.parametrize("form", ["gnu", "pax"])
def test_a_sparse_file_of_an_archive_is_refused_before_its_holes_are_written(
    alice: Any, tmp_path: Path, form: str
) -> None:
    data = sparse("model.safetensors", 64 * 1024**2, form=form)
    assert len(data) == 10_240
    (fault,) = register(alice, data)["errors"]
    assert fault["code"] == "sparse"
    assert "pack it without --sparse" in fault["message"]
    assert not list((tmp_path / "validations").iterdir())


def test_headers_of_an_archive_count_as_well(alice: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member's extended header is read as a whole, and may say that it has gigabytes."""
    monkeypatch.setattr(archives, "SMALL_BYTES", 1024**2)
    info = tarfile.TarInfo("x")
    info.pax_headers = {"comment": "x" * (8 * 1024**2)}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info)
    assert register(alice, buffer.getvalue())["errors"][0]["code"] == "too_large"


def test_the_command_waits_and_tells_every_fault(oolong: Any, tmp_path: Path) -> None:
    folder = tmp_path / "work" / "m"
    folder.mkdir()
    for name, data in files().items():
        (folder / name).write_bytes(data)
    first = oolong("model", "upload", "m", "--name", "m", "--json")
    assert (first.code, json.loads(first.out)["ref"]) == (0, "m@1"), first.err
    again = oolong("model", "upload", "m", "--name", "m", "--json")
    assert json.loads(again.out)["id"] == json.loads(first.out)["id"]
    (folder / "generation_config.json").write_text("{}")
    begun = oolong("model", "upload", "m", "--name", "m", "--no-wait", "--json")
    assert json.loads(begun.out)["state"] == "VALIDATING"
    (folder / "modeling.py").write_text("import os")
    refused = oolong("model", "upload", "m", "--name", "m")
    assert refused.code == 2 and "modeling.py is code" in refused.err, refused
    shown = oolong("model", "list").out
    assert "m@1" in shown and "INVALID" in shown
    listed = json.loads(oolong("model", "list", "--json").out)
    (invalid,) = [model["id"] for model in listed if model["state"] == "INVALID"]
    assert "modeling.py is code" in oolong("model", "get", invalid).out
    assert oolong("model", "delete", invalid).code == 0
    assert oolong("model", "get", "m@1").code == 0
