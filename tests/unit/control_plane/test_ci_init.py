"""`oolong ci init` against this very control plane: a workflow file, an account, and a token that can do its work."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from control_plane.accounts.models import ApiToken, Role, User
from oolong.cli.ci import SCOPES
from oolong.client import Client

WORDS = (
    "--dataset",
    "data/my rows.jsonl",
    "--assert",
    "eval/accuracy >= 0.8",
    "--assert",
    "eval/prompts >= 64",
)


@pytest.mark.parametrize(
    ("provider", "file"), [("github", ".github/workflows/oolong.yml"), ("gitlab", ".gitlab-ci.yml")]
)
def test_the_token_has_the_least_scopes_an_end_and_is_in_no_file(
    alice: Any, oolong: Any, clock: Any, provider: str, file: str
) -> None:
    done = oolong("ci", "init", provider, *WORDS)
    assert done.code == 0, done.err
    token = done.out.strip()
    row = ApiToken.objects.get(name=f"pipeline ({provider})")
    assert (row.user.service_of, sorted(row.scopes)) == (alice.project, sorted(SCOPES))
    assert row.expires_at == clock.now + timedelta(days=90)
    with Client("http://testserver", token) as client:
        assert client.me().scopes == sorted(SCOPES)
    for path in Path().rglob("*"):
        assert not path.is_file() or token not in path.read_text()

    text = Path(file).read_text()
    document = yaml.safe_load(text)
    assert "/api/v1/client/requirements.txt" in text and "pip install oolong" not in text
    gate = (
        document["jobs"]["gate"]["steps"][2]["env"]
        if provider == "github"
        else document["oolong-gate"]["variables"]
    )
    assert gate["DATASET"] == "data/my rows.jsonl"
    assert gate["GATE_ASSERT"] == "eval/accuracy >= 0.8\neval/prompts >= 64"
    if provider == "github":
        assert "OOLONG_TOKEN" in gate and "OOLONG_TOKEN" not in str(document["jobs"]["gate"]["steps"][1])


def test_a_second_pipeline_gets_a_token_of_the_same_account(alice: Any, oolong: Any) -> None:
    assert oolong("ci", "init", "github").code == 0
    refused = oolong("ci", "init", "github")
    assert refused.code == 2 and "--force" in refused.err
    shown = json.loads(oolong("ci", "init", "github", "--force", "--no-expiry", "--json").out)
    assert shown["token"]["expires_at"] is None
    assert User.objects.filter(service_of=alice.project).count() == 1
    assert oolong("ci", "init", "gitlab", "--days", "3", "--no-expiry").code == 2


def test_an_account_that_may_too_little_leaves_no_token_and_no_file(alice: Any, oolong: Any) -> None:
    assert oolong("service-account", "create", "ci", Role.VIEWER).code == 0
    refused = oolong("ci", "init", "github")
    assert refused.code == 1 and "oolong service-account set ci editor" in refused.err
    assert not Path(".github/workflows/oolong.yml").exists()
    assert ApiToken.objects.get(name="pipeline (github)").revoked_at is not None
