"""Child processes for reward functions that may hang: after a timeout the child is killed and replaced."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import resource
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from gpu_agents.rewards.reward import (
    Completion,
    Factory,
    Reward,
    Score,
    ScoringError,
    VerifierFailed,
    as_score,
)

log = logging.getLogger(__name__)

START_SECONDS = 60.0
MEMORY_BYTES = 2 * 1024**3  # address space of a child
_spawn = multiprocessing.get_context("spawn")


class TimedOut(VerifierFailed):
    """The function timed out; its process was killed."""


@dataclass(kw_only=True)
class _Child:
    process: SpawnProcess
    connection: Connection


class ChildPool:
    """`size` processes, each with one instance of the reward function. Calls wait for a free child."""

    def __init__(self, build: Factory, options: dict[str, Any], *, size: int, timeout_seconds: float) -> None:
        self._build = build  # a module-level function, which children import by name
        self._options = options
        self._size = size
        self._timeout_seconds = timeout_seconds
        self._free: asyncio.Queue[_Child] = asyncio.Queue()
        self._children: list[_Child] = []
        self.killed = 0

    async def start(self) -> None:
        for _ in range(self._size):
            await self._start_child()

    async def score(self, completion: Completion) -> Score:
        """Raises ScoringError, VerifierFailed, TimedOut."""
        child = await self._free.get()
        asking = asyncio.create_task(
            asyncio.to_thread(_request_score, child.connection, completion, self._timeout_seconds)
        )
        try:
            reply = await asyncio.shield(asking)
        except (TimedOut, EOFError, OSError) as error:
            await self._replace(child, asking)
            if isinstance(error, TimedOut):
                raise
            raise VerifierFailed("the reward process crashed while scoring") from error
        except BaseException:
            # Cancelled: the next call must not receive this call's reply.
            await asyncio.shield(self._replace(child, asking))
            raise
        self._free.put_nowait(child)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def close(self) -> None:
        for child in self._children:
            child.process.kill()
            child.connection.close()
        for child in self._children:
            await asyncio.to_thread(child.process.join)

    async def _start_child(self) -> None:
        ours, theirs = _spawn.Pipe()
        process = _spawn.Process(target=_serve, args=(theirs, self._build, self._options), daemon=True)
        process.start()
        theirs.close()
        child = _Child(process=process, connection=ours)
        self._children.append(child)
        ready = await asyncio.to_thread(ours.poll, START_SECONDS)
        if not ready or ours.recv() != "ready":
            raise RuntimeError(f"a reward process did not start within {START_SECONDS:g} s")
        self._free.put_nowait(child)

    async def _replace(self, child: _Child, asking: asyncio.Task[Score | Exception]) -> None:
        self.killed += 1
        child.process.kill()
        await asyncio.to_thread(child.process.join)
        # Its thread still reads this connection. Closed under it, the descriptor could be the next child's already,
        # and the thread would take that child's message.
        await asyncio.gather(asking, return_exceptions=True)
        child.connection.close()
        self._children.remove(child)
        log.warning("replacing a killed reward process (%d so far)", self.killed)
        await self._start_child()


def _request_score(
    connection: Connection, completion: Completion, timeout_seconds: float
) -> Score | Exception:
    connection.send(completion)
    if not connection.poll(timeout_seconds):
        raise TimedOut(f"no score within {timeout_seconds:g} s")
    reply: Score | Exception = connection.recv()
    return reply


def _serve(connection: Connection, build: Factory, options: dict[str, Any]) -> None:
    """The child's loop: send a score or an error for each completion."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    reward = build(options)
    connection.send("ready")
    while True:
        try:
            completion = connection.recv()
        except EOFError:
            return
        connection.send(_score_or_reason(reward, completion))


def _score_or_reason(reward: Reward, completion: Completion) -> Score | Exception:
    try:
        return as_score(reward(completion))
    except ScoringError as error:
        return ScoringError(str(error))
    except Exception as error:  # noqa: BLE001 - reported as this completion's error
        return VerifierFailed(f"{type(error).__name__}: {error}")
