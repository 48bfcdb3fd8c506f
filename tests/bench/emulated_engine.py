"""An emulated device in SGLang's place: the scripted engine, with its HTTP contract, paced by the device model.

It is started as the node Python is (`-m sglang.launch_server …`) by a worker that cannot tell. It takes as many
requests into its batch as it was told, oldest first; prefills what is new and, after an interruption, what was
running; then all of the batch decode together. Lengths come from `Lengths`, by prompt and place in the group.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from pathlib import Path

from aiohttp import web

from tests.bench.device_model import DeviceModel, Emulation, Lengths
from tests.unit.rollout.fake_engine import EOS, FakeEngine, FakeRequest
from trainers.phase_timer import PhaseTimer

ANSWERS = ("\\boxed{0}", "\\boxed{1}")  # of even and odd members; every row's answer is 1
READINGS_SECONDS = 0.25
FORGIVEN_SECONDS = 0.25  # by which the process may run behind the model's clock and still catch up


class EmulatedEngine(FakeEngine):
    def __init__(
        self, *, device: DeviceModel, lengths: Lengths, max_running: int, load_seconds: float, api_key: str
    ) -> None:
        super().__init__(api_key=api_key, places=max_running)
        self.load_delay = device.real(load_seconds)
        self._device = device
        self._lengths = lengths
        self._members: Counter[tuple[int, ...]] = Counter()
        self._planned: dict[str, list[int]] = {}  # rid -> all tokens it will emit
        self._resident: dict[str, int] = {}  # rid -> tokens of it in the KV cache
        self._disturbed = asyncio.Event()
        self._progress = 0.0  # share of the running decode burst that is done
        self._phase = "idle"
        self._timer = PhaseTimer()
        self._timer.flush(self._phase)
        self.seconds: Counter[str] = Counter()  # real ones, by phase
        self.worked: Counter[str] = (
            Counter()
        )  # emulated seconds of finished work, by phase, as the model has them
        self.emitted = 0
        self.bursts: Counter[str] = Counter()  # decode bursts, and their sums of batch and context
        self.late_seconds = 0.0  # real time that the model's clock was behind and never caught up
        self._done_at = 0.0  # when the last work ended by the model's clock

    # --- the device ---------------------------------------------------------------------------------------

    async def _step_for_ever(self) -> None:
        while True:
            if self.paused is not None:
                self._enter("paused")
                await self._may_start.wait()
                self._done_at = time.perf_counter()
                continue
            batch = self.running[: self.places]
            if not batch:
                self._enter("idle")
                await asyncio.sleep(0.002)
                self._done_at = time.perf_counter()
                continue
            probes = [request for request in batch if request.ignore_eos and request.temperature == 0]
            if probes:
                await self._serve_probe(probes[0])
                continue
            if await self._prefill(batch):
                self._finish_prefills(batch)
                await self._decode([request for request in batch if request.limit])

    async def _serve_probe(self, probe: FakeRequest) -> None:
        """A fixed greedy continuation: its tokens are single tokens, and nothing else runs."""
        seconds = self._device.decode_seconds(steps=probe.limit, batch=1, context=self._device.prompt_tokens)
        if await self._work("probe", seconds):
            probe.output += [97] * probe.limit
            probe.versions += [self.version] * probe.limit
            self._finish(probe, {"type": "length", "length": probe.limit})

    async def _prefill(self, batch: list[FakeRequest]) -> bool:
        """Everything of the batch that is not in the KV cache. False when it was cut short by a pause."""
        missing = [one for one in batch if self._resident.get(one.rid) != self._context(one)]
        for phase, requests in (
            ("prefill", [one for one in missing if not one.output]),
            ("re_prefill", [one for one in missing if one.output]),
        ):
            if not requests:
                continue
            tokens = sum(self._context(one) for one in requests)
            if not await self._work(phase, self._device.prefill_seconds(tokens)):
                return False
            self._resident |= {one.rid: self._context(one) for one in requests}
        return True

    def _finish_prefills(self, batch: list[FakeRequest]) -> None:
        for request in batch:
            if not request.limit:
                self._resident.pop(request.rid)
                self._finish(request, {"type": "length", "length": 0})

    async def _decode(self, batch: list[FakeRequest]) -> None:
        """A burst of as many decode steps as one emitted token stands for."""
        if not batch:
            return
        context = sum(self._context(request) for request in batch)
        seconds = self._device.decode_seconds(
            steps=self._device.tokens_per_emitted, batch=len(batch), context=context
        )
        began = time.perf_counter()
        left = seconds * (1 - self._progress)
        if not await self._work("decode", left):
            done = (time.perf_counter() - began) / self._device.real(seconds)
            self._progress = min(self._progress + done, 0.999)
            return
        self._progress = 0.0
        self.bursts.update({"bursts": 1, "batch": len(batch), "context": context})
        for request in batch:
            if request.finish is None:
                self._emit(request)

    def _emit(self, request: FakeRequest) -> None:
        planned = self._planned.get(request.rid)
        if planned is None:
            planned = self._planned[request.rid] = (
                [97] * request.limit if request.ignore_eos else self._plan(request)
            )
        request.retracted = False
        request.output.append(planned[len(request.output)])
        request.versions.append(self.version)
        self.emitted += 1
        self._resident[request.rid] = self._context(request)
        if len(request.output) == len(planned) or len(request.output) >= request.limit:
            if request.output[-1] == EOS:
                self._finish(request, {"type": "stop", "matched": EOS})
            else:
                self._finish(request, {"type": "length", "length": request.limit})
            del self._planned[request.rid]
            self._resident.pop(request.rid)

    def _plan(self, request: FakeRequest) -> list[int]:
        prompt = tuple(request.prompt)
        member = self._members[prompt]
        self._members[prompt] += 1
        length = self._lengths.of(prompt, member)
        emitted = max(1, round(length / self._device.tokens_per_emitted))
        text = "x" * emitted + ANSWERS[member % 2]
        return [*token_ids(text)[len(text) + 1 - emitted :], EOS]

    def _context(self, request: FakeRequest) -> int:
        return self._device.prompt_tokens + len(request.output) * self._device.tokens_per_emitted

    async def _work(self, phase: str, seconds: float) -> bool:
        """Be busy so long, in emulated seconds. False when a pause came first; the device then stops at once.

        Work that follows work begins when that ended by the model's clock: what this process itself needs to hand
        out tokens, or is late by, is not added to the device's time.
        """
        self._enter(phase)
        self._disturbed.clear()
        self._done_at += self._device.real(seconds)
        left = self._done_at - time.perf_counter()
        if left < -FORGIVEN_SECONDS:
            self.late_seconds -= left
            self._done_at -= left
        try:
            await asyncio.wait_for(self._disturbed.wait(), max(left, 0.0))
        except TimeoutError:
            self.worked[phase] += seconds
            return self.paused is None
        return False

    async def _pause(self, call: web.Request) -> web.Response:
        answer: web.Response = await super()._pause(call)
        self._resident.clear()  # the KV cache of the old weights is dropped
        self._disturbed.set()
        return answer

    # --- what it measures -----------------------------------------------------------------------------------

    def _enter(self, phase: str) -> None:
        self._timer.start(phase)
        self._phase = phase

    async def keep_readings(self, file: Path) -> None:
        """One line a quarter of a second: when, and what has been since the start."""
        with file.open("a") as output:
            while True:
                await asyncio.sleep(READINGS_SECONDS)
                self.seconds.update(self._timer.flush(self._phase))
                reading = {
                    "at": self._timer.flushed_at,
                    "seconds": self.seconds,
                    "emitted": self.emitted,
                    "late_seconds": self.late_seconds,
                    **self.bursts,
                }
                output.write(json.dumps(reading) + "\n")
                output.flush()


def token_ids(text: str) -> list[int]:
    """Of printable ASCII, in the byte tokenizer of the tiny model: its symbols are sorted, `!` first."""
    return [ord(character) - 33 for character in text]


async def serve(arguments: argparse.Namespace) -> None:
    job_directory: Path = arguments.config.parent
    emulation = Emulation.read(job_directory.parent.parent)
    engine = EmulatedEngine(
        device=emulation.device,
        lengths=emulation.lengths,
        max_running=arguments.max_running_requests,
        load_seconds=emulation.load_seconds,
        api_key=json.loads(arguments.config.read_text())["api-key"],
    )
    readings = asyncio.create_task(engine.keep_readings(job_directory / "engine-readings.jsonl"))
    try:
        await engine.serve_for_ever(arguments.port)
    finally:
        readings.cancel()


def main() -> None:
    if sys.argv[1:3] != ["-m", "sglang.launch_server"]:
        sys.exit(f"this is no Python, it only launches an engine: {sys.argv}")
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--max-running-requests", type=int, required=True)
    arguments, _others = parser.parse_known_args(sys.argv[3:])
    asyncio.run(serve(arguments))


if __name__ == "__main__":
    main()
