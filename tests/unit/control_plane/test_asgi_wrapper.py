"""The schema, the dashboard's door, and the shape of errors outside of the API."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from openapi_spec_validator import OpenAPIV31SpecValidator

from control_plane.config import InvalidSetting, database_settings, load_config
from control_plane.core.infra.health import readiness


def test_the_openapi_document_is_made_without_a_warning_valid_and_whole(db: None) -> None:
    text = io.StringIO()
    call_command("spectacular", "--format", "openapi-json", "--fail-on-warn", stdout=text)
    document = json.loads(text.getvalue())
    assert document["openapi"].startswith("3.1")
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []
    operations = [
        operation["operationId"]
        for path in document["paths"].values()
        for method, operation in path.items()
        if method in ("get", "post", "put", "patch", "delete")
    ]
    assert len(operations) == len(set(operations)) > 45
    assert "Problem" in document["components"]["schemas"]


def test_answers_have_the_fields_that_the_schema_promises(alice: Any, node: Any, start: Any) -> None:
    run = start(node())
    document = json.loads(alice.get("/openapi.json").content)

    def check(path: str, url: str) -> None:
        body = document["paths"][f"/api/v1{path}"]["get"]["responses"]["200"]["content"]["application/json"]
        name = body["schema"]["$ref"].rsplit("/", 1)[1]
        promised = document["components"]["schemas"][name]
        found = alice.get(url).json()
        assert set(found) == set(promised["properties"]), path
        for key, value in found.items():
            if key == "data" and value:
                item = document["components"]["schemas"][
                    promised["properties"]["data"]["items"]["$ref"].rsplit("/", 1)[1]
                ]
                assert set(value[0]) == set(item["properties"]), path

    for path in ("/runs", "/datasets", "/models", "/tokens", "/pool", "/me"):
        check(path, path)
    for path in ("", "/events", "/jobs", "/attempts"):
        check(f"/runs/{{run_id}}{path}", f"/runs/{run['id']}{path}")


def test_without_a_built_dashboard_the_page_says_how_to_build_it(db: None) -> None:
    page = Client().get("/runs/run_x")
    assert page.status_code == 200
    assert b"npm run build" in page.content


def test_a_built_dashboard_serves_its_assets_for_ever_and_its_page_everywhere(
    settings: Any, tmp_path: Path, db: None
) -> None:
    dist = tmp_path / "dist"
    (dist / "assets").mkdir(parents=True)
    (dist / "index.html").write_text("<html>the page</html>")
    (dist / "assets" / "main-abc123.js").write_text("console.log(1)")
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, webui_dist=dist)
    browser = Client()
    script = browser.get("/assets/main-abc123.js")
    assert b"".join(script.streaming_content) == b"console.log(1)"
    assert "immutable" in script.headers["Cache-Control"]
    for address in ("/", "/runs/run_x", "/pool"):
        page = browser.get(address)
        assert page.content == b"<html>the page</html>"
        assert page.headers["Cache-Control"] == "no-cache"
    assert browser.get("/assets/none.js").status_code == 404
    (dist / "assets" / "main-def456.js").write_text("console.log(2)")
    rebuilt = browser.get("/assets/main-def456.js")  # built while the server runs
    assert rebuilt.content == b"console.log(2)" and "immutable" in rebuilt.headers["Cache-Control"]
    assert rebuilt.headers["Content-Type"].startswith("text/javascript")
    assert browser.get("/assets/../../secret").status_code == 404
    assert browser.get("/../settings.py").status_code in (200, 400, 404)
    assert b"SECRET" not in browser.get("/../settings.py").content


def test_an_unknown_api_address_is_a_problem_document(db: None) -> None:
    reply = Client().get("/api/v1/nothing")
    assert (reply.status_code, reply.headers["Content-Type"]) == (404, "application/problem+json")


def test_the_api_page_comes_without_a_foreign_address(db: None) -> None:
    browser = Client()
    page = browser.get("/api/v1/docs")
    assert page.status_code == 200
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page.content.decode())
    assert len(addresses) >= 3
    assert all(browser.get(address).status_code == 200 for address in addresses), addresses


def test_health_says_what_is_wrong_with_the_broker(db: None, settings: Any) -> None:
    settings.ENVIRONMENT = dataclasses.replace(settings.ENVIRONMENT, redis_url="redis://127.0.0.1:1/0")
    readiness.forget()
    reply = Client().get("/api/v1/health").json()
    assert reply["db"] == "ok"
    assert reply["broker"].startswith("does not answer")
    readiness.forget()


@pytest.mark.parametrize("name", ["DATABASE_URL", "SECRET_KEY"])
def test_a_missing_setting_is_named_with_an_example(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv(name)
    with pytest.raises(InvalidSetting, match=name):
        load_config()


def test_a_database_url_is_taken_apart() -> None:
    found = database_settings("postgresql://me:p%40ss@db.example:5433/oolong")
    assert (found["USER"], found["PASSWORD"], found["HOST"], found["PORT"], found["NAME"]) == (
        "me", "p@ss", "db.example", "5433", "oolong",
    )  # fmt: skip
    with pytest.raises(InvalidSetting, match="mysql"):
        database_settings("mysql://x/y")
