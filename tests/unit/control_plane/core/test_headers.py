"""What answers tell a browser to refuse, and that the pages need no more than they are allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client


def policy(reply: Any) -> dict[str, str]:
    parts = [part.strip().partition(" ") for part in reply["Content-Security-Policy"].split(";")]
    return {name: value for name, _, value in parts}


@pytest.mark.parametrize(
    "path", ["/", "/runs/run_x", "/api/v1/docs", "/static/drf_spectacular_sidecar/none.js"]
)
def test_a_page_runs_only_scripts_of_this_server(db: None, path: str) -> None:
    reply = Client().get(path)
    allowed = policy(reply)
    assert (allowed["default-src"], allowed["script-src"], allowed["frame-ancestors"]) == (
        "'none'",
        "'self'",
        "'none'",
    )
    assert (allowed["base-uri"], allowed["form-action"]) == ("'none'", "'self'")
    assert reply["X-Content-Type-Options"] == "nosniff"
    assert reply["Referrer-Policy"] == "same-origin"
    assert reply["X-Frame-Options"] == "DENY"
    assert "camera=()" in reply["Permissions-Policy"]
    assert reply["Cross-Origin-Opener-Policy"] == "same-origin"


@pytest.mark.parametrize(
    "path", ["/api/v1/health", "/api/v1/runs", "/api/v1/nothing", "/api/v1/openapi.json"]
)
def test_an_answer_of_the_api_may_do_nothing(db: None, path: str) -> None:
    reply = Client().get(path)
    assert policy(reply) == {"default-src": "'none'", "frame-ancestors": "'none'"}
    assert "no-cache" in reply["Cache-Control"] or "no-store" in reply["Cache-Control"]


def test_the_page_of_the_api_has_no_script_inside(db: None) -> None:
    """Its own script is a file too: `script-src 'self'` would refuse it otherwise."""
    page = Client().get("/api/v1/docs").content.decode()
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 3
    assert all("src=" in attributes and not text.strip() for attributes, text in scripts)
    script = Client().get("/api/v1/docs?script=")
    assert "SwaggerUIBundle(" in script.content.decode()
    assert script["Content-Type"].startswith("application/javascript")


def test_a_built_page_is_protected_as_well(db: None, tmp_path: Path) -> None:
    """Files are answered by whitenoise before any view: the headers stand around that too."""
    reply = Client().get("/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui.css")
    assert reply.status_code == 200
    assert policy(reply)["script-src"] == "'self'"


def test_over_tls_browsers_are_told_to_stay_with_it(db: None, settings: Any) -> None:
    settings.SECURE_HSTS_SECONDS = 60
    assert Client().get("/api/v1/health", secure=True)["Strict-Transport-Security"] == "max-age=60"
    assert "Strict-Transport-Security" not in Client().get("/api/v1/health")


def test_cookies_are_out_of_reach_of_scripts() -> None:
    assert settings.SESSION_COOKIE_HTTPONLY and settings.CSRF_COOKIE_HTTPONLY
    assert settings.SESSION_COOKIE_SAMESITE == settings.CSRF_COOKIE_SAMESITE == "Lax"
