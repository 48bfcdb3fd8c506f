"""A model from a hub: what is fetched, how it continues after a break, and every model that is not taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpu_agents.hf_import.__main__ import client
from gpu_agents.hf_import.downloader import HubDownloader
from gpu_agents.hf_import.file_selection import ImportRejected
from oolong.system.safe_http import AddressBlocked, CheckedTransport, EndpointPolicy
from tests.support.scripted_hub import COMMIT, ScriptedHub, serving

WEIGHTS = bytes(range(256)) * 2000
CONFIG = json.dumps({"model_type": "qwen3"}).encode()
INDEX_FILE = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()
MODEL = {
    "config.json": CONFIG, "tokenizer.json": b"{}", "model.safetensors": WEIGHTS, "README.md": b"#",
    "pytorch_model.bin": b"pickle", "modeling_tiny.py": b"import os",
}  # fmt: skip


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with client("http://127.0.0.1:1", []) as http:
        yield http


def led_to(target: str, *, hosts: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    """What was asked, as (address, Authorization), of a public hub that redirects a file to `target`."""
    asked: list[tuple[str, str]] = []
    numbers = {"hub.example.org": "8.8.8.8", "cdn.example.org": "9.9.9.9", "store.lan": "10.0.0.7"}

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.url.netloc.decode(), request.headers.get("Authorization", "")))
        first = request.headers["Host"] == "hub.example.org" and request.url.path == "/file"
        return httpx.Response(302, headers={"Location": target}) if first else httpx.Response(200)

    transport = CheckedTransport(
        EndpointPolicy("https://hub.example.org", hosts, "; to allow it, say {host}"),
        direct=httpx.MockTransport(answer), resolve=lambda host, port: [numbers.get(host, host)],
    )  # fmt: skip
    with httpx.Client(transport=transport, follow_redirects=True) as http:
        try:
            http.get("https://hub.example.org/file", headers={"Authorization": "Bearer hub-token"})
        except AddressBlocked as refusal:
            asked.append(("refused", str(refusal)))
    return asked


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("https://169.254.169.254/latest/meta-data", "'169.254.169.254' is not at a public address"),
        ("https://store.lan/file", "to allow it, say store.lan"),
        ("https://127.0.0.1:9200/", "is not at a public address"),
        ("https://localhost/", "is not at a public address"),
        ("https://[::ffff:10.0.0.7]/", "is not at a public address"),
        (
            "http://cdn.example.org/file?sig=s3cret",
            "http://cdn.example.org/file: only https:// is allowed",
        ),
        ("http://127.0.0.1:9200/", "only https:// is allowed"),
        ("http://hub.example.org/file", "only https:// is allowed"),
    ],
)
def test_redirect_to_a_private_address_is_denied(target: str, said: str) -> None:
    asked = led_to(target)
    assert [address for address, _ in asked] == ["8.8.8.8", "refused"], "nothing was sent there"
    assert said in asked[1][1] and "s3cret" not in asked[1][1]


def test_public_addresses_the_hub_and_allowed_hosts_are_reachable() -> None:
    assert led_to("https://cdn.example.org/file") == [("8.8.8.8", "Bearer hub-token"), ("9.9.9.9", "")]
    named = led_to("https://store.lan/file", hosts=frozenset({"store.lan"}))
    assert named == [("8.8.8.8", "Bearer hub-token"), ("10.0.0.7", "")]
    own = led_to("https://hub.example.org/other")
    assert own == [("8.8.8.8", "Bearer hub-token"), ("8.8.8.8", "Bearer hub-token")]


def test_behind_a_proxy_only_ip_addresses_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.lan:3128")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    reach = EndpointPolicy("https://hub.example.org")
    reach.check(httpx.URL("https://cdn.example.org/x"), [])
    with httpx.Client(transport=CheckedTransport(reach, through_proxy=True)) as http:
        for url in ("https://169.254.169.254/", "https://localhost/"):
            with pytest.raises(AddressBlocked):
                http.get(url)


def fetch(
    hub: ScriptedHub, folder: Path, http: httpx.Client, *, token: str = "", revision: str = "main"
) -> str:
    folder.mkdir(exist_ok=True)
    asking = HubDownloader(http, endpoint=hub.url, model="acme/tiny", token=token, pause=lambda _: None)
    return asking.fetch(revision, folder, lambda *_: None)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_weights_config_and_tokenizer_are_downloaded_but_no_code_or_pickles(
    tmp_path: Path, http: httpx.Client
) -> None:
    told: list[tuple[int, int]] = []
    with serving(ScriptedHub(MODEL)) as hub:
        asking = HubDownloader(http, endpoint=hub.url, model="acme/tiny", token="")
        assert asking.fetch("main", tmp_path, lambda *done: told.append(done)) == COMMIT
    assert names(tmp_path) == {"config.json", "tokenizer.json", "model.safetensors"}
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS
    assert told[-1] == (told[-1][1],) * 2 and told == sorted(told)


def test_only_shards_in_the_index_are_downloaded(tmp_path: Path, http: httpx.Client) -> None:
    shards = {
        "model-1.safetensors": b"1",
        "model-2.safetensors": b"2",
        "model.safetensors.index.json": INDEX_FILE,
    }
    with serving(ScriptedHub({**MODEL, **shards})) as hub:
        fetch(hub, tmp_path, http)
    assert names(tmp_path) == {"config.json", "tokenizer.json", *shards}


def test_interrupted_download_resumes(tmp_path: Path, http: httpx.Client) -> None:
    with serving(ScriptedHub(MODEL, break_after=100_000)) as hub:
        fetch(hub, tmp_path, http)
        ranges = [wanted for path, wanted, _ in hub.asked if path.startswith("/storage/")]
    assert ranges == ["", "bytes=100000-"]
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS


def test_another_process_resumes_a_partial_download(tmp_path: Path, http: httpx.Client) -> None:
    (tmp_path / "model.safetensors.part").write_bytes(WEIGHTS[:70_000])
    with serving(ScriptedHub(MODEL)) as hub:
        fetch(hub, tmp_path, http)
        assert ("/storage/model.safetensors", "bytes=70000-", "") in hub.asked
    assert (tmp_path / "model.safetensors").read_bytes() == WEIGHTS


def test_token_is_sent_to_the_hub_but_not_to_redirect_targets(tmp_path: Path, http: httpx.Client) -> None:
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
        ({"model.safetensors.index.json": INDEX_FILE}, {}, "model-1.safetensors, which does not exist"),
        ({"model.safetensors.index.json": b"[]"}, {}, "malformed"),
        ({"model.safetensors": None, "a.safetensors": b"1", "b.safetensors": b"2"}, {}, "2 weights files"),
        ({}, {"wrong_sha256": True}, "the hub lists 0000"),
        ({}, {"gated": True}, "is gated: accept its terms"),
        ({}, {"token": "right"}, "private or the token is not accepted"),
    ],
)
def test_unusable_model_is_rejected_with_the_remedy(
    tmp_path: Path, http: httpx.Client, changes: dict[str, bytes | None], options: dict[str, Any], said: str
) -> None:
    files = {name: data for name, data in {**MODEL, **changes}.items() if data is not None}
    with serving(ScriptedHub(files, **options)) as hub, pytest.raises(ImportRejected) as refusal:
        fetch(hub, tmp_path, http, token="wrong")
    assert said in str(refusal.value)
    assert not (tmp_path / "model.safetensors").exists()


def test_missing_revision_and_unreachable_hub_are_reported(tmp_path: Path, http: httpx.Client) -> None:
    with serving(ScriptedHub(MODEL)) as hub:
        with pytest.raises(ImportRejected, match="no such revision"):
            fetch(hub, tmp_path, http, revision="v9")
        assert fetch(hub, tmp_path, http, revision=COMMIT) == COMMIT
    with pytest.raises(ImportRejected, match="does not answer"):
        fetch(hub, tmp_path / "other", http)
