"""What holds for every address: ETags, conditional writes, keys that make a POST safe to repeat, notice of an end."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from django.http import HttpResponse
from django.urls import URLPattern, URLResolver, get_resolver

from control_plane.core.api.deprecation import deprecated
from control_plane.core.models import IdempotencyKey

# POSTs without an Idempotency-Key, and why a repeat does no harm.
SAFE_WITHOUT_A_KEY = {
    "session": "a second login is a second session of the same browser",
    "stream-tickets": "a second ticket is a second stream; each lives for seconds",
    "uploads": "a streamed body: the same bytes are one upload",
    "uploads/fetch": "goes out to the network: the same bytes are one upload",
    "upload-sessions/<str:session_id>/complete": "asked again it answers the same upload",
    "datasets/preview": "changes nothing",
    "runs/validate": "changes nothing",
    "runs/plan": "changes nothing",
    "runs/simulate": "changes nothing",
    "runs/what-if": "changes nothing",
    "runs/<str:run_id>/what-if": "changes nothing",
    "checkpoint-retention/plan": "changes nothing",
    "invitations/lookup": "changes nothing",
    "invitations/accept": "an invitation is taken once, and who asks may be nobody yet",
    "agent/": "the agent's protocol has fences of its own",
}


def test_an_answer_has_an_etag_and_the_same_is_not_sent_twice(alice: Any) -> None:
    run = alice.run()
    first = alice.get(f"/runs/{run['id']}")
    etag = first.headers["ETag"]
    assert etag.startswith('"') and first.headers["Cache-Control"] == "private, no-cache"
    for held in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        again = alice.get(f"/runs/{run['id']}", **{"If-None-Match": held})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)
    alice.call("PATCH", f"/runs/{run['id']}", {"notes": "new"})
    moved = alice.get(f"/runs/{run['id']}", **{"If-None-Match": etag})
    assert (moved.status_code, moved.json()["notes"]) == (200, "new")
    assert moved.headers["ETag"] != etag


def test_a_refusal_has_no_etag(alice: Any) -> None:
    assert "ETag" not in alice.get("/runs/run_none").headers


@pytest.mark.parametrize(
    ("path", "method", "body"),
    [
        ("/project", "PATCH", {"tested_rewards": True}),
        ("/checkpoint-retention", "PUT", {"keep_last": 3, "automatic": False}),
        ("/runs/{run}", "PATCH", {"notes": "mine"}),
    ],
)
def test_of_two_who_read_the_same_only_the_first_writes(
    person: Any, alice: Any, path: str, method: str, body: dict[str, Any]
) -> None:
    admin = person("root", role="admin")
    path = path.format(run=alice.run()["id"])
    etag = admin.get(path).headers["ETag"]
    first = admin.call(method, path, body, **{"If-Match": etag})
    assert first.status_code == 200, first.content
    assert first.headers["ETag"] == admin.get(path).headers["ETag"] != etag
    second = admin.call(method, path, body, **{"If-Match": etag})
    assert (second.status_code, second.json()["code"]) == (412, "precondition_failed")
    assert second.headers["ETag"] == first.headers["ETag"]
    assert admin.call(method, path, body, **{"If-Match": "*"}).status_code == 200
    assert admin.call(method, path, body).status_code == 200, "without If-Match the last one wins"


def test_if_match_on_what_is_not_there_is_404(alice: Any) -> None:
    reply = alice.call("PATCH", "/runs/run_none", {"notes": ""}, **{"If-Match": '"x"'})
    assert reply.status_code == 404


def posts() -> dict[str, Any]:
    """Path below /api/v1 → the handler of POST."""

    def walk(patterns: list[Any], prefix: str) -> dict[str, Any]:
        found = {}
        for pattern in patterns:
            path = prefix + str(pattern.pattern)
            if isinstance(pattern, URLResolver):
                found |= walk(pattern.url_patterns, path)
            elif isinstance(pattern, URLPattern) and path.startswith("api/v1/"):
                view = getattr(pattern.callback, "cls", None)
                if view is not None and hasattr(view, "post"):
                    found[path.removeprefix("api/v1/")] = view.post
        return found

    return walk(get_resolver().url_patterns, "")


def test_every_post_takes_an_idempotency_key_or_says_why_not() -> None:
    without = [
        path
        for path, handler in posts().items()
        if not getattr(handler, "idempotent", False)
        and not any(
            path == safe or (safe.endswith("/") and path.startswith(safe)) for safe in SAFE_WITHOUT_A_KEY
        )
    ]
    assert without == [], "decorate these with @idempotent, or give the reason above"


def test_a_token_made_twice_with_one_key_is_one_token_and_lies_sealed(alice: Any) -> None:
    body = {"name": "nightly pipeline", "scopes": ["runs:read"]}
    first, again = (alice.post("/tokens", body, **{"Idempotency-Key": "once"}) for _ in range(2))
    assert first.status_code == again.status_code == 201
    assert first.json() == again.json() and again.headers["Idempotent-Replayed"] == "true"
    assert [token["name"] for token in alice.get("/tokens").json()["data"]].count("nightly pipeline") == 1
    kept = json.dumps(IdempotencyKey.objects.get(key="once").body)
    assert first.json()["token"] not in kept and "nightly" not in kept


def test_a_refused_post_is_not_remembered(alice: Any) -> None:
    bad = alice.post("/tokens", {"name": "ci", "scopes": ["nope"]}, **{"Idempotency-Key": "k"})
    assert bad.status_code == 422 or bad.status_code == 403
    assert not IdempotencyKey.objects.filter(key="k").exists()


def test_what_goes_away_says_since_when_until_when_and_what_instead() -> None:
    @deprecated(since=date(2026, 1, 1), sunset=date(2026, 9, 1), instead="/api/v1/new")
    def old() -> HttpResponse:
        return HttpResponse()

    answer = old()
    assert answer["Deprecation"] == "@1767225600"
    assert answer["Sunset"] == "Tue, 01 Sep 2026 00:00:00 GMT"
    assert answer["Link"] == '</api/v1/new>; rel="successor-version"'
    with pytest.raises(ValueError, match="180 days"):
        deprecated(since=date(2026, 1, 1), sunset=date(2026, 2, 1), instead="/")
