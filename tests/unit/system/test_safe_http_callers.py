"""Whoever sends a request to an address that somebody else names takes the checked transport."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import requests

from control_plane.accounts.identity.provider_http import provider_session
from control_plane.config import Oidc
from control_plane.webhooks import http as webhooks
from gpu_agents.hf_import.__main__ import client as hub_client
from gpu_agents.rewards.remote.counts import RemoteCounts
from gpu_agents.rewards.remote.endpoint import EndpointFailed, RemoteContext, RemoteEndpoint
from oolong.contracts.run_spec.remote_rewards import RemoteOptions
from oolong.public_address import is_public
from oolong.system.safe_http import AddressBlocked, FetchFailed, download

PUBLIC = "93.184.216.34"
Caller = Callable[[str], None]


def import_dataset(url: str) -> None:
    with download(url, most_bytes=100, seconds=60.0) as chunks:
        b"".join(chunks)


def deliver_webhook(url: str) -> None:
    answer = webhooks.post(url, b"{}", {}, networks=[])
    if answer.status is None:
        raise AddressBlocked(answer.error)


def import_model(url: str) -> None:
    with hub_client("https://hub.example.org", []) as http:
        http.get(url)


def query_identity_provider(url: str) -> None:
    oidc = Oidc(
        issuer="https://id.example.org", client_id="a", client_secret="b", name="c", role_claim="d", roles=()
    )
    with provider_session(oidc, seconds=60.0) as session:
        session.get(url)


CALLERS = (import_dataset, deliver_webhook, import_model, query_identity_provider)
REFUSED = (AddressBlocked, FetchFailed, requests.ConnectionError)


class Network:
    """Answers for names, and for requests, which it keeps by the address that they are sent to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: dict[str, list[list[str]]] = {}  # the answers for a name, one for each look-up
        self.leads_to: dict[str, str] = {}  # the Location that a host answers with
        self.sent: list[str] = []
        for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setattr(socket, "getaddrinfo", self._resolve)
        monkeypatch.setattr(socket, "create_connection", self._go_around)
        monkeypatch.setattr(httpx.HTTPTransport, "handle_request", lambda _, request: self._answer(request))

    def _resolve(self, host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        answers = self.names.get(host, [[host]])
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request.url.host)
        name = request.headers["Host"]
        assert request.extensions["sni_hostname"] == name
        if name in self.leads_to:
            return httpx.Response(
                302, headers={"Location": self.leads_to[name]}, stream=httpx.ByteStream(b"")
            )
        return httpx.Response(200, stream=httpx.ByteStream(b"{}"))

    def _go_around(self, address: Any, *_: Any, **__: Any) -> Any:
        raise AssertionError(f"a connection to {address} goes around the checked transport")


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    return Network(monkeypatch)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(
    "answer",
    [["127.0.0.1"], ["169.254.169.254"], ["10.0.0.5"], ["::1"], ["::ffff:10.0.0.5"], ["fd00:ec2::254"],
     [PUBLIC, "10.0.0.5"], ["10.0.0.5", PUBLIC]],
)  # fmt: skip
def test_nothing_is_sent_to_a_name_with_a_private_address(
    network: Network, caller: Caller, answer: list[str]
) -> None:
    network.names["named.example.org"] = [answer]
    with pytest.raises(REFUSED, match="not at a public address"):
        caller("https://named.example.org/x")
    assert network.sent == []


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::ffff:127.0.0.1]"])
def test_nothing_is_sent_to_a_private_address_by_its_number(
    network: Network, caller: Caller, host: str
) -> None:
    with pytest.raises(REFUSED):
        caller(f"https://{host}/x")
    assert network.sent == []


@pytest.mark.parametrize("caller", CALLERS)
def test_a_redirect_to_a_private_address_is_not_followed(network: Network, caller: Caller) -> None:
    network.names = {"named.example.org": [[PUBLIC]], "inside.example.org": [["10.0.0.5"]]}
    network.leads_to["named.example.org"] = "https://inside.example.org/latest/meta-data"
    if caller is deliver_webhook:  # follows none
        caller("https://named.example.org/x")
    else:
        with pytest.raises(REFUSED, match="not at a public address"):
            caller("https://named.example.org/x")
    assert network.sent == [PUBLIC]


@pytest.mark.parametrize("caller", CALLERS)
def test_a_name_that_changes_its_answer_is_connected_to_by_the_checked_number(
    network: Network, caller: Caller
) -> None:
    network.names["named.example.org"] = [[PUBLIC], ["127.0.0.1"]]
    caller("https://named.example.org/x")
    assert network.sent == [PUBLIC] and all(map(is_public, network.sent))


def test_the_provider_may_have_hosts_of_its_own_in_a_private_network(network: Network) -> None:
    network.names = {"id.example.org": [["10.0.0.5"]], "keys.example.org": [["10.0.0.6"]]}
    oidc = Oidc(
        issuer="https://id.example.org", client_id="a", client_secret="b", name="c", role_claim="d", roles=(),
        hosts=("keys.example.org",),
    )  # fmt: skip
    with provider_session(oidc, seconds=60.0) as session:
        assert session.get("https://id.example.org/x").json() == {}
        assert session.get("https://keys.example.org/x").json() == {}
        with pytest.raises(requests.ConnectionError, match="add localhost to OOLONG_OIDC_HOSTS"):
            session.get("https://localhost/x")
    assert network.sent == ["10.0.0.5", "10.0.0.6"]


def test_the_client_secret_is_not_sent_after_a_redirect(network: Network) -> None:
    network.names = {"id.example.org": [[PUBLIC]], "other.example.org": [["8.8.8.8"]]}
    network.leads_to["id.example.org"] = "https://other.example.org/token"
    oidc = Oidc(
        issuer="https://id.example.org", client_id="a", client_secret="b", name="c", role_claim="d", roles=()
    )
    with (
        provider_session(oidc, seconds=60.0) as session,
        pytest.raises(requests.ConnectionError, match="redirects"),
    ):
        session.post("https://id.example.org/token", data={"client_secret": "b"})
    assert network.sent == [PUBLIC]


async def test_a_reward_goes_to_a_listed_origin_by_the_number_that_was_looked_up_and_follows_no_redirect(
    network: Network,
) -> None:
    network.names = {"judge.example.org": [["10.0.0.5"], ["10.0.0.6"], ["127.0.0.1"]]}
    context = RemoteContext(origins=frozenset({"https://judge.example.org"}), counts=RemoteCounts())
    options = RemoteOptions(url="https://judge.example.org/score")
    endpoint = RemoteEndpoint(options, context, reward="http", timeout_seconds=60)
    assert await endpoint.post({}) == b"{}"
    network.leads_to["judge.example.org"] = "https://10.0.0.7/latest/meta-data"
    with pytest.raises(EndpointFailed, match="redirects are not followed"):
        await endpoint.post({})
    await endpoint.close()
    assert network.sent == ["10.0.0.5", "10.0.0.6"]
