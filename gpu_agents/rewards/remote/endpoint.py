"""Requests to a service that gives scores: bounded in number, time and bytes, to allowed origins, and sent again after
faults that may pass."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import httpx

from gpu_agents.rewards.remote.counts import RemoteCounts
from gpu_agents.rewards.remote.retry_after import retry_after_seconds
from gpu_agents.rewards.reward import InvalidOptions, ScoringError
from oolong.contracts.run_spec.remote_rewards import RemoteOptions
from oolong.system.backoff import Backoff
from oolong.system.safe_http import (
    AddressBlocked,
    CheckedTransport,
    OriginPolicy,
    Resolve,
    parse_url,
    resolve_name,
    without_query,
)
from oolong.system.socket_deadline import SocketDeadline, close_after
from oolong.untrusted import clean_text

log = logging.getLogger(__name__)

MAX_BYTES = 4 * 1024 * 1024  # of an answer
CONNECT_SECONDS = 10.0
GIVE_UP_SECONDS = 300.0  # after which no request is sent again
BACKOFF_SECONDS = (0.5, 30.0)  # first and longest wait
PASSING_STATUSES = frozenset({408, 429})  # and 5xx
EXCERPT_CHARACTERS = 300


class EndpointFailed(ScoringError):
    """The service gave no usable answer. Requests were repeated already, so the reward service does not call again."""


@dataclass(frozen=True)
class Fault:
    message: str
    may_pass: bool
    retry_after: float | None = None


@dataclass(frozen=True, kw_only=True)
class RemoteContext:
    """What remote rewards need besides their options."""

    origins: frozenset[str] = frozenset()
    secrets: Callable[[str], str | None] = lambda name: None  # the value of a project secret
    counts: RemoteCounts
    use_cache: bool = True  # a reward test compares two scores of each completion, so it asks twice
    resolve: Resolve = resolve_name
    backoff_seconds: tuple[float, float] = BACKOFF_SECONDS


@cache
def _tls() -> ssl.SSLContext:
    """Loaded once: a file of all certificate authorities takes a while."""
    return httpx.create_ssl_context(trust_env=False)


class RemoteEndpoint:
    """One service of one reward."""

    def __init__(
        self, options: RemoteOptions, context: RemoteContext, *, reward: str, timeout_seconds: float
    ) -> None:
        """Raises InvalidOptions for an origin that is not allowed, and for a secret that the job was not given."""
        policy = OriginPolicy(
            context.origins, "; an installation admin adds {origin} to OOLONG_REWARD_ORIGINS"
        )
        try:
            self._url = parse_url(options.url)
            policy.check(self._url, ())
        except AddressBlocked as error:
            raise InvalidOptions(f"reward {reward}: url: {error}", code="address_blocked") from error
        self._name = without_query(self._url)
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": "oolong-rewards",
        }
        if options.secret is not None:
            value = (context.secrets(options.secret) or "").strip()
            if not value.isascii() or not value.isprintable() or not value:
                raise InvalidOptions(
                    f"reward {reward}: secret: {options.secret} has no value that a header can hold; set it again",
                    code="secret_invalid",
                )
            self._headers["Authorization"] = f"Bearer {value}"
        self._timeout_seconds = timeout_seconds
        self._attempts = options.attempts
        self._context, self.counts = context, context.counts
        self._permits = asyncio.Semaphore(options.concurrency)
        self._threads = ThreadPoolExecutor(options.concurrency, thread_name_prefix="reward")
        self._client = httpx.Client(
            trust_env=False,  # no proxy, no .netrc
            follow_redirects=False,
            timeout=httpx.Timeout(timeout_seconds, connect=min(CONNECT_SECONDS, timeout_seconds)),
            transport=CheckedTransport(
                policy,
                resolve=context.resolve,
                direct=httpx.HTTPTransport(
                    verify=_tls(), limits=httpx.Limits(max_connections=None, max_keepalive_connections=0)
                ),
            ),
        )
        self._deadlines: set[SocketDeadline] = set()  # of requests on their way
        self._not_before = 0.0  # monotonic; the service asked for a pause

    async def post(self, document: dict[str, object]) -> bytes:
        """The body of the 2xx answer. Raises EndpointFailed."""
        content = json.dumps(document).encode()
        initial, maximum = self._context.backoff_seconds
        backoff = Backoff(initial=initial, maximum=maximum, draw=random.random)
        async with self._permits:
            began, attempt = time.monotonic(), 0
            while True:
                await self._wait_for_pause(began)
                attempt += 1
                self.counts.requests += 1
                self.counts.retries += attempt > 1
                answer = await asyncio.get_running_loop().run_in_executor(self._threads, self._send, content)
                if isinstance(answer, bytes):
                    return answer
                wait = backoff.failed(answer.retry_after)
                too_late = time.monotonic() + wait - began > GIVE_UP_SECONDS
                if not answer.may_pass or attempt == self._attempts or too_late:
                    self.counts.failures += 1
                    raise EndpointFailed(f"{answer.message} (attempt {attempt} of {self._attempts})")
                if answer.retry_after is not None:
                    self._not_before = max(self._not_before, time.monotonic() + answer.retry_after)
                log.info("%s; sending it again in %.1f s", answer.message, wait)
                await asyncio.sleep(wait)

    async def close(self) -> None:
        for deadline in tuple(self._deadlines):
            deadline.now()
        self._threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self._client.close)

    async def _wait_for_pause(self, began: float) -> None:
        """What one request was told holds for the others, too."""
        while (left := self._not_before - time.monotonic()) > 0:
            if time.monotonic() + left - began > GIVE_UP_SECONDS:
                self.counts.failures += 1
                raise EndpointFailed(f"{self._name} asked for a pause of {left:.0f} s more")
            await asyncio.sleep(left)

    def _send(self, content: bytes) -> bytes | Fault:
        """Send it once, in a thread. A read timeout alone would let a service send a byte now and then forever."""
        started = time.monotonic()
        with close_after(self._timeout_seconds) as deadline:
            self._deadlines.add(deadline)
            try:
                answer = self._answer(content, deadline)
            except AddressBlocked as error:
                return Fault(str(error), may_pass=False)
            except httpx.HTTPError as error:
                if deadline.done.is_set() or isinstance(error, httpx.TimeoutException):
                    return self._late()
                return Fault(f"{self._name}: {error or type(error).__name__}", may_pass=True)
            finally:
                self._deadlines.discard(deadline)
            if deadline.done.is_set():  # which may look like the end of the answer
                return self._late()
        if isinstance(answer, bytes):
            self.counts.latencies.append(time.monotonic() - started)
        return answer

    def _answer(self, content: bytes, deadline: SocketDeadline) -> bytes | Fault:
        request = self._client.build_request(
            "POST", self._url, content=content, headers=self._headers, extensions={"trace": deadline.watch}
        )
        response = self._client.send(request, stream=True)
        try:
            body = b""
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > MAX_BYTES:
                    return Fault(f"{self._name} answers with more than {MAX_BYTES} bytes", may_pass=False)
        finally:
            response.close()
        status = response.status_code
        if 200 <= status < 300:
            return body
        if 300 <= status < 400:
            return Fault(
                f"{self._name} answers with status {status}, and redirects are not followed: name the address that "
                "answers itself",
                may_pass=False,
            )
        excerpt = clean_text(body.decode(errors="replace").strip(), max_characters=EXCERPT_CHARACTERS)
        return Fault(
            f"{self._name} answers with status {status}: {excerpt or 'no text'}",
            may_pass=status in PASSING_STATUSES or status >= 500,
            retry_after=retry_after_seconds(response.headers.get("Retry-After", ""), now=time.time()),
        )

    def _late(self) -> Fault:
        return Fault(f"{self._name} gives no answer within {self._timeout_seconds:g} s", may_pass=True)
