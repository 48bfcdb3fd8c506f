"""A model from a hub: what is fetched, how it goes on after a break, and every model that is not taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpu_agents.hub.fetching import Hub
from gpu_agents.hub.selection import HubRefused
from tests.support.scripted_hub import COMMIT, ScriptedHub, serving

WEIGHTS = bytes(range(256)) * 2000
CONFIG = json.dumps({"model_type": "qwen3"}).encode()
INDEX = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()
MODEL = {
    "config.json": CONFIG, "tokenizer.json": b"{}", "model.safetensors": WEIGHTS, "README.md": b"#",
    "pytorch_model.bin": b"pickle", "modeling_tiny.py": b"import os",
}  # fmt: skip


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(follow_redirects=True, trust_env=False, timeout=30) as client:
        yield client


def fetch(
    hub: ScriptedHub, folder: Path, http: httpx.Client, *, token: str = "", revision: str = "main"
) -> str:
    folder.mkdir(exist_ok=True)
    client = Hub(http, endpoint=hub.url, model="acme/tiny", token=token, pause=lambda _: None)
    return client.fetch(revision, folder, lambda *_: None)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_weights_config_and_tokenizer_come_and_neither_code_nor_pickles(
    tmp_path: Path, http: httpx.Client
) -> None:
    told: list[tuple[int, int]] = []
    with serving(ScriptedHub(MODEL)) as hub:
        client = Hub(http, endpoint=hub.url, model="acme/tiny", token="")
        assert client.fetch("main", tmp_path, lambda *done: told.append(done)) == COMMIT
    assert names(tmp_path) == {"config.json", "tokenizer.json", "model.safetensors"}
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS
    assert told[-1] == (told[-1][1],) * 2 and told == sorted(told)


def test_only_the_shards_of_the_index_come(tmp_path: Path, http: httpx.Client) -> None:
    shards = {"model-1.safetensors": b"1", "model-2.safetensors": b"2", "model.safetensors.index.json": INDEX}
    with serving(ScriptedHub({**MODEL, **shards})) as hub:
        fetch(hub, tmp_path, http)
    assert names(tmp_path) == {"config.json", "tokenizer.json", *shards}


def test_a_file_that_breaks_off_goes_on_where_it_was(tmp_path: Path, http: httpx.Client) -> None:
    with serving(ScriptedHub(MODEL, break_after=100_000)) as hub:
        fetch(hub, tmp_path, http)
        ranges = [wanted for path, wanted, _ in hub.asked if path.startswith("/storage/")]
    assert ranges == ["", "bytes=100000-"]
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS


def test_another_process_goes_on_with_what_lies_there(tmp_path: Path, http: httpx.Client) -> None:
    (tmp_path / "model.safetensors.part").write_bytes(WEIGHTS[:70_000])
    with serving(ScriptedHub(MODEL)) as hub:
        fetch(hub, tmp_path, http)
        assert ("/storage/model.safetensors", "bytes=70000-", "") in hub.asked
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS


def test_the_token_goes_to_the_hub_and_not_where_it_redirects_to(tmp_path: Path, http: httpx.Client) -> None:
    with serving(ScriptedHub(MODEL, token="hub-token")) as hub:
        fetch(hub, tmp_path, http, token="hub-token")
        for path, _, sent in hub.asked:
            assert sent == ("" if path.startswith("/storage/") else "Bearer hub-token"), path


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"model.safetensors": None}, {}, "no *.safetensors weights; it has pytorch_model.bin"),
        ({"tokenizer.json": None}, {}, "no tokenizer.json"),
        ({"config.json": None}, {}, "no config.json"),
        ({"config.json": b'{"model_type": "x", "auto_map": {}}'}, {}, "auto_map"),
        ({"config.json": b"{}"}, {}, "no model_type"),
        ({"config.json": b"["}, {}, "not JSON"),
        ({"model.safetensors.index.json": INDEX}, {}, "model-1.safetensors, which is not there"),
        ({"model.safetensors.index.json": b"[]"}, {}, "malformed"),
        ({"model.safetensors": None, "a.safetensors": b"1", "b.safetensors": b"2"}, {}, "2 files of weights"),
        ({}, {"wrong_sha256": True}, "the hub names 0000"),
        ({}, {"gated": True}, "is gated: accept its terms"),
        ({}, {"token": "right"}, "private or the token is not accepted"),
    ],
)
def test_a_model_that_cannot_be_had_or_used_is_refused_with_the_way_out(
    tmp_path: Path, http: httpx.Client, changes: dict[str, bytes | None], options: dict[str, Any], said: str
) -> None:
    files = {name: data for name, data in {**MODEL, **changes}.items() if data is not None}
    with serving(ScriptedHub(files, **options)) as hub, pytest.raises(HubRefused) as refusal:
        fetch(hub, tmp_path, http, token="wrong")
    assert said in str(refusal.value)
    assert not (tmp_path / "model.safetensors").exists()


def test_a_revision_that_is_not_there_and_a_hub_that_is_away_are_told(
    tmp_path: Path, http: httpx.Client
) -> None:
    with serving(ScriptedHub(MODEL)) as hub:
        with pytest.raises(HubRefused, match="no such revision"):
            fetch(hub, tmp_path, http, revision="v9")
        assert fetch(hub, tmp_path, http, revision=COMMIT) == COMMIT
    with pytest.raises(HubRefused, match="does not answer"):
        fetch(hub, tmp_path / "other", http)
