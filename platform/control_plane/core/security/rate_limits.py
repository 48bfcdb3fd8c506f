"""How often one may ask: a budget of units a minute for each user, node and unknown address, counted in Valkey.

A request is charged before anything else is done for it, so it is not known yet whose its credential is. The digest
of a credential that was let in is remembered for a while with its owner; a stranger's requests, those with made-up
tokens among them, are charged to the address. Where Valkey does not answer, requests pass, counted and logged.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from typing import Any, cast

import redis.asyncio as valkey
from prometheus_client import Counter
from redis.exceptions import RedisError

from control_plane.config import Quotas
from control_plane.core.infra.activity import ChangeMark

log = logging.getLogger(__name__)

WINDOW_SECONDS = 60
REMEMBERED_SECONDS = 300
CALL_SECONDS = 0.5
AWAY_SECONDS = 5.0  # after a failure Valkey is left alone for so long

UNLIMITED = Counter(
    "oolong_rate_limit_unlimited_requests_total",
    "Requests that passed uncounted because Valkey did not answer.",
)
REFUSED = Counter(
    "oolong_rate_limit_refused_requests_total", "Requests that were refused with 429.", ["kind"]
)

SOCKET_COST = 3  # the handshake of a WebSocket, as a stream of events

# Units of what costs the server more than a read of a few rows.
_COSTS = (
    (re.compile(r"(GET) /api/v1/(openapi\.json|docs|runs/[^/]+/logs/search)"), 20),
    (re.compile(r"(POST) /api/v1/(datasets/preview|uploads/fetch|dataset-validations|checkpoint-retention/.*)"), 20),
    (re.compile(r"(GET|POST) /api/v1/(dataset-versions/[^/]+/(split|diff|leakage)|datasets/[^/]+/merge)"), 20),
    (re.compile(r"(GET|POST) /api/v1/(audit/export|runs/(plan|simulate|what-if|[^/]+/what-if))"), 20),
    (re.compile(r"(POST) /api/v1/(runs|tokens|session|runs/validate)"), 5),
    (re.compile(r"(GET) /api/v1/(stream|runs/[^/]+/metrics)"), 3),
)  # fmt: skip
_FREE = re.compile(r"GET /api/v1/health")  # asked by load balancers, many times a second
# The rollouts of agents: hundreds a second for a run, which its admission gate and engines bound. A credential that is
# not known yet pays, so that guessing one is never free.
_ROLLOUT = re.compile(r"\w+ /api/v1/runs/[^/]+/sessions(/.*)?")

_TAKE = """
local who = ARGV[1] ~= '' and redis.call('GET', 'oolong:rate:who:' .. ARGV[1]) or false
local name = who or ('address:' .. ARGV[2])
local kind = string.match(name, '^[^:]+')
local quota = tonumber(kind == 'address' and ARGV[4] or kind == 'node' and ARGV[5] or ARGV[6])
local cost = tonumber(who and ARGV[3] or ARGV[8])
if cost == 0 then
    return {1, kind, 0, 0, 0}
end
local key = 'oolong:rate:used:' .. name
local used = redis.call('INCRBY', key, cost)
local left = redis.call('TTL', key)
if left < 0 then
    redis.call('EXPIRE', key, ARGV[7])
    left = tonumber(ARGV[7])
end
return {who and 1 or 0, kind, quota, used, left}
"""


@dataclass(frozen=True)
class RateLimitResult:
    """What a request took of its budget."""

    known: bool  # the credential was let in before
    kind: str  # address, node, user, service_account
    quota: int
    used: int
    seconds_left: int  # until the budget is whole again

    @property
    def is_over(self) -> bool:
        return 0 < self.quota < self.used

    def headers(self) -> dict[str, str]:
        """draft-ietf-httpapi-ratelimit-headers."""
        if not self.quota:
            return {}
        left = max(0, self.quota - self.used)
        return {
            "RateLimit-Policy": f'"{self.kind}";q={self.quota};w={WINDOW_SECONDS}',
            "RateLimit": f'"{self.kind}";r={left};t={self.seconds_left}',
        }


def request_cost(method: str, path: str) -> int:
    """Units for a caller whose credential is known."""
    return 0 if _is_rollout(method, path) else unknown_caller_cost(method, path)


def _is_rollout(method: str, path: str) -> bool:
    return _ROLLOUT.fullmatch(f"{method} {path}") is not None


def unknown_caller_cost(method: str, path: str) -> int:
    """Units for an address without a credential, or with one that was not let in lately."""
    if path.startswith("/ws/"):
        return SOCKET_COST
    if not path.startswith("/api/"):
        return _cost_of_a_page(method, path)
    line = f"{'GET' if method == 'HEAD' else method} {path}"  # the server does the same work for both
    if _FREE.fullmatch(line):
        return 0
    for pattern, units in _COSTS:
        if pattern.fullmatch(line):
            return units
    return 1 if line.startswith("GET ") else 2


def _cost_of_a_page(method: str, path: str) -> int:
    """Files and pages of the dashboard are free: a page loads many of them at once."""
    if path.startswith("/login/"):
        return 5  # a link, or the identity provider, which is asked over the network
    if path == "/readyz":
        return 1
    if path == "/metrics":
        return 5  # a scrape counts in the database; a guess at its token is paid for, too
    return 0 if method in ("GET", "HEAD") else 2


class Limiter:
    def __init__(self, url: str, quotas: Quotas) -> None:
        self._client = valkey.Redis.from_url(
            url, socket_connect_timeout=CALL_SECONDS, socket_timeout=CALL_SECONDS
        )
        self._script = self._client.register_script(_TAKE)
        self.changes = ChangeMark(self._client)
        self._quotas = quotas
        self._away_until = 0.0

    async def take(self, *, credential: str, address: str, method: str, path: str) -> RateLimitResult | None:
        """Charge a request; None where nothing is counted. `credential` is a digest, or "" for none."""
        unknown_cost = unknown_caller_cost(method, path)
        cost = 0 if _is_rollout(method, path) else unknown_cost
        if not unknown_cost or not any((self._quotas.address, self._quotas.node, self._quotas.user)):
            return None
        if time.monotonic() < self._away_until:
            UNLIMITED.inc()
            return None
        quotas = self._quotas
        arguments: list[str | int] = [
            credential, address, cost, quotas.address, quotas.node, quotas.user, WINDOW_SECONDS,
            unknown_cost,
        ]  # fmt: skip
        try:
            answer = cast(list[Any], await self._script(args=arguments))
        except (RedisError, OSError) as error:
            self._note_away(error)
            UNLIMITED.inc()
            return None
        known, kind, quota, used, left = answer
        # In its last second a budget has 0 whole ones left, and who comes again at once is refused again.
        charge = RateLimitResult(bool(known), kind.decode(), int(quota), int(used), max(1, int(left)))
        if charge.is_over:
            REFUSED.labels(charge.kind).inc()
        return charge

    async def remember(self, credential: str, owner: str) -> None:
        """The credential was let in: it is `user:usr_…`'s from now on."""
        try:
            await self._client.set(f"oolong:rate:who:{credential}", owner, ex=REMEMBERED_SECONDS)
        except (RedisError, OSError) as error:
            self._note_away(error)

    async def forget(self, credential: str) -> None:
        """It was refused: what comes with it is a stranger's."""
        try:
            await self._client.delete(f"oolong:rate:who:{credential}")
        except (RedisError, OSError) as error:
            self._note_away(error)

    async def close(self) -> None:
        await self._client.aclose()

    def _note_away(self, error: Exception) -> None:
        self._away_until = time.monotonic() + AWAY_SECONDS
        log.warning("rate limits: Valkey does not answer (%s); requests pass uncounted for a while", error)
