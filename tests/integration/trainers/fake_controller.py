"""A fake controller with the real API that serves recorded batches."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

from oolong.contracts import rollout

Batches = Callable[[int], list[rollout.Group]]


class FakeController:
    """Serves `batches(version)` at /take and records the calls. Use as a context manager."""

    def __init__(self, batches: Batches, *, token: str = "secret", trained: int = 0) -> None:
        self.announced: list[rollout.PublishVersionRequest] = []
        self.snapshots: list[int] = []
        self.ended: list[str] = []
        self.taken: list[int] = []
        self.stale: list[rollout.StaleEngineRequest] = []
        self.probes: list[rollout.AckedProbe] = []
        self.trained = trained
        self._trains = False  # a batch was taken, and nothing was announced since
        self._batches = batches
        self._token = token
        self._lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, reply = owner.answer(self.path, body, self.headers.get("Authorization", ""))
                data = msgspec.msgpack.encode(reply)
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeController:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def version(self) -> int:
        return self.announced[-1].version if self.announced else -1

    def answer(self, path: str, body: bytes, authorization: str) -> tuple[int, msgspec.Struct]:
        if authorization != f"Bearer {self._token}":
            return 401, rollout.ErrorReply(code="unauthorized", message="wrong token")
        with self._lock:
            verbs = {
                "/publish_version": self._announce,
                "/take": self._take, "/snapshot": self._snapshot, "/state": self._state,
                "/probes": self._probes, "/stale_engine": self._stale, "/end": self._end,
            }  # fmt: skip
            return verbs[path](body)

    def _announce(self, body: bytes) -> tuple[int, msgspec.Struct]:
        request = msgspec.msgpack.decode(body, type=rollout.PublishVersionRequest)
        again = (self.version, False) == (request.version, self._trains)
        if again and request.outcome != "none":
            return 200, rollout.Ack()  # its answer was lost
        self._trains = False
        self.announced.append(request)
        if request.outcome == "trained":
            self.trained += len(self._batches(request.version - 1))
        return 200, rollout.Ack()

    def _take(self, body: bytes) -> tuple[int, msgspec.Struct]:
        request = msgspec.msgpack.decode(body, type=rollout.TakeRequest)
        if request.version != self.version:
            return 409, rollout.ErrorReply(
                code="stale_epoch", message=f"version {self.version} was announced last"
            )
        if not self._trains:  # else it is sent again
            self.taken.append(request.version)
        self._trains = True
        groups = self._batches(request.version)
        return 200, rollout.TakeReply(groups=groups, sampled=sampled(groups))

    def _snapshot(self, body: bytes) -> tuple[int, msgspec.Struct]:
        version = msgspec.msgpack.decode(body, type=rollout.SnapshotRequest).version
        self.snapshots.append(version)
        return 200, rollout.SnapshotReply(snapshot=msgspec.msgpack.encode({"trained": self.trained}))

    def _state(self, body: bytes) -> tuple[int, msgspec.Struct]:
        return 200, rollout.StateReply(
            newest_version=self.version, weights=None, paused=False, ended=False, admissible_groups=0, refusal=None,
            ledger=rollout.LedgerCounts(trained=self.trained), tokens=rollout.TokenCounts(),
        )  # fmt: skip

    def _probes(self, body: bytes) -> tuple[int, msgspec.Struct]:
        handed, self.probes = self.probes, []
        return 200, rollout.ProbesReply(probes=handed)

    def _stale(self, body: bytes) -> tuple[int, msgspec.Struct]:
        self.stale.append(msgspec.msgpack.decode(body, type=rollout.StaleEngineRequest))
        return 200, rollout.Ack()

    def _end(self, body: bytes) -> tuple[int, msgspec.Struct]:
        self.ended.append(msgspec.msgpack.decode(body, type=rollout.EndRequest).reason)
        return 200, rollout.Ack()


def sampled(groups: list[rollout.Group]) -> list[tuple[str, int]]:
    """The trajectories whose values by token the trainer is asked for: of two groups, the first of each."""
    return [(group.group_id, 0) for group in (groups[0], groups[-1])]


def recorded_batches(*, groups: int, members: int, seed: int = 1, longest: int = 40) -> Batches:
    """Batches that depend on the version only: random tokens, rewards and behavior log-probabilities."""

    def batch(version: int) -> list[rollout.Group]:
        rng = random.Random(f"{seed}/{version}")
        return [_group(rng, version, number, members, longest) for number in range(groups)]

    return batch


def _group(rng: random.Random, version: int, number: int, members: int, longest: int) -> rollout.Group:
    return rollout.Group(
        group_id=f"0-{version * 1000 + number}-0", row=number, prompt_token_ids=_tokens(rng, rng.randint(1, 12)),
        prompt="", answer="", trajectories=[_trajectory(rng, version, longest) for _ in range(members)],
    )  # fmt: skip


def _trajectory(rng: random.Random, version: int, longest: int) -> rollout.Trajectory:
    length = rng.randint(1, longest)
    older = max(0, version - rng.randint(0, 3))
    switch = rng.randint(0, length)
    reward = float(rng.random() < 0.5)
    return rollout.Trajectory(
        token_ids=_tokens(rng, length), loss_mask=[1] * length,
        behavior_logprobs=[-5.5 + rng.gauss(0, 0.3) for _ in range(length)],
        policy_versions=[older] * switch + [version] * (length - switch),
        finish_reason="stop", reward=reward, score=reward, interruptions=int(0 < switch < length),
    )  # fmt: skip


def _tokens(rng: random.Random, length: int) -> Sequence[int]:
    return [rng.randrange(256) for _ in range(length)]
