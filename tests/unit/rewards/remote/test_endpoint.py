"""Requests to a service: which faults are repeated, how long, and what is never sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpu_agents.rewards.remote import endpoint as module
from gpu_agents.rewards.remote.counts import RemoteCounts
from gpu_agents.rewards.remote.endpoint import EndpointFailed, RemoteContext, RemoteEndpoint
from gpu_agents.rewards.remote.retry_after import retry_after_seconds
from gpu_agents.rewards.reward import InvalidOptions
from oolong.contracts.run_spec.remote_rewards import RemoteOptions
from tests.support.score_server import Reply, ScoreServer, Seen

OK = Reply(document={"fine": True})


@pytest.fixture
def server() -> Iterator[ScoreServer]:
    with ScoreServer(lambda seen: OK).serving() as serving:
        yield serving


async def post(
    server: ScoreServer, *, path: str = "/score", timeout: float = 60.0, **options: Any
) -> RemoteCounts:
    """Send one request; the counts after it."""
    counts = RemoteCounts()
    context = RemoteContext(
        origins=frozenset({server.origin}), counts=counts, secrets={"KEY": "k3y-of-the-judge"}.get,
        backoff_seconds=(0.01, 0.02),
    )  # fmt: skip
    read = RemoteOptions(url=server.origin + path, **options)
    endpoint = RemoteEndpoint(read, context, reward="http", timeout_seconds=timeout)
    try:
        await endpoint.post({"a": 1})
    except EndpointFailed as error:
        error.add_note(str(counts.requests))
        raise
    finally:
        await endpoint.close()
    return counts


async def test_the_secret_is_a_bearer_token_and_the_body_is_json(server: ScoreServer) -> None:
    counts = await post(server, path="/a/b?c=d", secret="KEY")
    (seen,) = server.seen
    assert (seen.path, seen.document, seen.headers["Authorization"]) == (
        "/a/b?c=d", {"a": 1}, "Bearer k3y-of-the-judge",
    )  # fmt: skip
    assert (counts.requests, counts.retries, counts.failures, len(counts.latencies)) == (1, 0, 0, 1)


async def test_without_a_secret_there_is_no_authorization(server: ScoreServer) -> None:
    await post(server)
    assert "Authorization" not in server.seen[0].headers


@pytest.mark.parametrize(
    "fault",
    [
        Reply(status=500),
        Reply(status=503, raw=b"busy"),
        Reply(status=429),
        Reply(status=408),
        Reply(drop=True),
    ],
    ids=lambda reply: "dropped" if reply.drop else str(reply.status),
)
async def test_a_fault_that_may_pass_is_repeated(server: ScoreServer, fault: Reply) -> None:
    server.script = lambda seen: fault if len(server.seen) < 3 else OK
    counts = await post(server)
    assert (counts.requests, counts.retries, counts.failures) == (3, 2, 0)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_a_refusal_is_not_repeated(server: ScoreServer, status: int) -> None:
    server.script = lambda seen: Reply(status=status, raw=b"the model is unknown")
    with pytest.raises(EndpointFailed, match=f"status {status}: the model is unknown"):
        await post(server)
    assert len(server.seen) == 1


async def test_all_attempts_are_made_and_then_it_fails(server: ScoreServer) -> None:
    server.script = lambda seen: Reply(status=500)
    with pytest.raises(EndpointFailed, match=r"attempt 4 of 4"):
        await post(server, attempts=4)
    assert len(server.seen) == 4


async def test_a_service_that_hangs_is_given_up_and_asked_again(server: ScoreServer) -> None:
    def hang_once(seen: Seen) -> Reply:
        if len(server.seen) == 1:
            server.released.wait(60)
        return OK

    server.script = hang_once
    counts = await post(server, timeout=0.3)
    assert (counts.requests, counts.retries) == (2, 1)


async def test_closing_ends_a_request_that_hangs(server: ScoreServer) -> None:
    def hang(seen: Seen) -> Reply:
        server.released.wait(60)
        return OK

    server.script = hang
    asking = asyncio.create_task(post(server, attempts=1))
    while not server.seen:
        await asyncio.sleep(0.005)
    began = time.monotonic()
    asking.cancel()  # closes the endpoint
    await asyncio.wait([asking])
    assert asking.cancelled() and time.monotonic() - began < 30


async def test_retry_after_holds_for_every_request_of_the_endpoint(server: ScoreServer) -> None:
    def script(seen: Seen) -> Reply:
        return Reply(status=429, headers={"Retry-After": "1"}) if len(server.seen) == 1 else OK

    server.script = script
    counts = RemoteCounts()
    context = RemoteContext(origins=frozenset({server.origin}), counts=counts, backoff_seconds=(0.01, 0.02))
    endpoint = RemoteEndpoint(
        RemoteOptions(url=server.origin + "/"), context, reward="http", timeout_seconds=60
    )
    first = asyncio.create_task(endpoint.post({"n": 1}))
    while endpoint._not_before == 0.0:
        await asyncio.sleep(0.005)
    await asyncio.gather(first, endpoint.post({"n": 2}))
    await endpoint.close()
    refused, *others = server.seen
    assert len(others) == 2 and all(seen.at - refused.at >= 0.95 for seen in others)


async def test_a_pause_longer_than_the_patience_fails_at_once(server: ScoreServer) -> None:
    server.script = lambda seen: Reply(status=429, headers={"Retry-After": "86400"})
    with pytest.raises(EndpointFailed, match="status 429"):
        await post(server)
    assert len(server.seen) == 1


async def test_an_answer_that_is_too_large_is_refused(
    server: ScoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    server.script = lambda seen: Reply(raw=b"x" * 100_000)
    with pytest.raises(EndpointFailed, match="more than 1000 bytes"):
        await post(server)
    assert len(server.seen) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(server: ScoreServer, status: int) -> None:
    with ScoreServer(lambda seen: OK).serving() as private:
        server.script = lambda seen: Reply(status=status, headers={"Location": private.origin + "/admin"})
        with pytest.raises(EndpointFailed, match="redirects are not followed"):
            await post(server, secret="KEY")
        assert len(server.seen) == 1 and private.seen == []


async def test_no_more_requests_than_allowed_are_on_their_way(server: ScoreServer) -> None:
    def wait_for_company(seen: Seen) -> Reply:
        deadline = time.monotonic() + 30
        while len(server.seen) < 3 and time.monotonic() < deadline:
            time.sleep(0.002)
        return OK

    server.script = wait_for_company
    context = RemoteContext(origins=frozenset({server.origin}), counts=RemoteCounts())
    read = RemoteOptions(url=server.origin + "/", concurrency=3)
    endpoint = RemoteEndpoint(read, context, reward="http", timeout_seconds=60)
    await asyncio.gather(*(endpoint.post({"n": number}) for number in range(12)))
    await endpoint.close()
    assert server.most_at_once == 3 and len(server.seen) == 12


@pytest.mark.parametrize(
    ("url", "origins"),
    [
        ("https://judge.example.com/x", []),
        ("https://judge.example.com/x", ["http://judge.example.com", "https://judge.example.com:8443"]),
        ("https://judge.example.com:8443/x", ["https://judge.example.com"]),
        ("http://169.254.169.254/latest", ["https://judge.example.com"]),
        ("https://sub.judge.example.com/x", ["https://judge.example.com"]),
    ],
)
def test_an_origin_that_is_not_listed_is_refused_with_the_way_out(url: str, origins: list[str]) -> None:
    context = RemoteContext(origins=frozenset(origins), counts=RemoteCounts())
    with pytest.raises(InvalidOptions, match=r"adds https?://.* to OOLONG_REWARD_ORIGINS") as refused:
        RemoteEndpoint(RemoteOptions(url=url), context, reward="http", timeout_seconds=1)
    assert refused.value.code == "address_blocked"


@pytest.mark.parametrize("url", ["https://JUDGE.example.com/x", "https://judge.example.com:443/x"])
def test_an_origin_is_the_same_in_any_spelling(url: str) -> None:
    context = RemoteContext(origins=frozenset({"https://judge.example.com"}), counts=RemoteCounts())

    async def build() -> None:
        await RemoteEndpoint(RemoteOptions(url=url), context, reward="http", timeout_seconds=1).close()

    asyncio.run(build())


@pytest.mark.parametrize("value", [None, "", "two\nlines", "clé"])
def test_a_secret_that_no_header_can_hold_is_refused_without_its_value(value: str | None) -> None:
    context = RemoteContext(
        origins=frozenset({"https://a.test"}), counts=RemoteCounts(), secrets=lambda name: value
    )
    with pytest.raises(InvalidOptions, match="KEY has no value that a header can hold") as refused:
        RemoteEndpoint(
            RemoteOptions(url="https://a.test", secret="KEY"), context, reward="http", timeout_seconds=1
        )
    assert "clé" not in str(refused.value)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0), (" 0 ", 0.0), ("", None), ("soon", None), ("-3", None), ("1.5", None), ("9" * 12, None),
        ("Thu, 01 Jan 1970 00:02:00 GMT", 20.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Thu, 01 Jan 1970 00:02:00 -0000", 20.0),
    ],
)  # fmt: skip
def test_retry_after_is_read(header: str, seconds: float | None) -> None:
    assert retry_after_seconds(header, now=100.0) == seconds
