"""SGLang as a child process: its command line, its environment, its death.

On a CPU it is the same SGLang with `--device cpu` and torch's own attention; the compiled kernel package that
it imports is stood in for (cpu_kernel_stub). Loopback only, with a key per job.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import psutil

from gpu_agents.rollout.engines.client import EngineClient
from gpu_agents.rollout.engines.errors import EngineError, EngineUnavailable
from oolong import cuda_host
from oolong.log_tail import log_tail

log = logging.getLogger(__name__)

GUARDED_PORTS = Path(__file__).parent / "guarded_ports"
CPU_KERNEL_STUB = Path(__file__).parent / "cpu_kernel_stub"
BOOT_SECONDS = 300.0
CUDA_BOOT_SECONDS = 900.0  # a first boot on a GPU compiles kernels and captures graphs
ENGINE_LOG = "engine.log"
BOOT_VERSION = "boot"  # label of the weights it boots with; nothing is ever sampled from them
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    node_python: str
    model_directory: str
    port: int
    api_key: str
    device: str  # cpu | cuda
    dtype: str
    max_running_requests: int
    max_total_tokens: int
    seed: int
    directory: Path  # the job's: engine.log, engine.yaml
    visible_devices: str = ""  # CUDA_VISIBLE_DEVICES
    memory_fraction: float | None = None  # of the GPU, for weights and KV cache
    deterministic: bool = False  # a request with a seed gives the same tokens, whatever runs beside it


def command(plan: LaunchPlan) -> list[str]:
    arguments = {
        "--model-path": plan.model_directory,
        "--device": plan.device,
        "--dtype": plan.dtype,
        "--host": "127.0.0.1",
        "--port": plan.port,
        "--max-running-requests": plan.max_running_requests,
        "--max-total-tokens": plan.max_total_tokens,
        "--random-seed": plan.seed,
        "--weight-version": BOOT_VERSION,
        "--config": plan.directory / "engine.yaml",
    }
    flags = ["--sleep-on-idle"]
    if plan.device == "cpu":
        # Without sleep-on-idle the idle scheduler keeps a whole core busy.
        arguments |= {
            "--log-level": "warning",
            "--attention-backend": "torch_native",
            "--mem-fraction-static": 0.3,
        }
    else:
        # The log names the backends and the size of the KV cache. torch's sampler, because one greedy request in a
        # batch would send the whole batch through a kernel that is compiled in the middle of the run.
        arguments |= {"--log-level": "info", "--sampling-backend": "pytorch"}
        flags.append("--enable-fp32-lm-head")  # the trainer computes its logits in float32 too
        if plan.memory_fraction is not None:
            arguments |= {"--mem-fraction-static": plan.memory_fraction}
        if plan.deterministic:
            flags.append("--enable-deterministic-inference")
    words = [str(part) for pair in arguments.items() for part in pair]
    return [plan.node_python, "-m", "sglang.launch_server", *words, *flags]


def environment(plan: LaunchPlan) -> dict[str, str]:
    names = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    common = {
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    if plan.device == "cpu":
        return (
            kept | common | {"SGLANG_USE_CPU_ENGINE": "1", "PYTHONPATH": f"{GUARDED_PORTS}:{CPU_KERNEL_STUB}"}
        )
    # SGLang compiles kernels with a bare `ninja`, which is installed beside the node environment's Python.
    path = os.pathsep.join([str(Path(plan.node_python).parent), kept.get("PATH", os.defpath)])
    on_gpu = {"PYTHONPATH": str(GUARDED_PORTS), "PATH": path, "CUDA_VISIBLE_DEVICES": plan.visible_devices}
    return kept | cuda_host.environment(os.environ) | common | on_gpu


class EngineProcess:
    """One incarnation of an engine. It dies with its worker (parent-death signal), however that ends."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        plan: LaunchPlan,
        *,
        boot_seconds: float = BOOT_SECONDS,
        log_offset: int = 0,
    ) -> None:
        self._process = process
        self._plan = plan
        self._boot_seconds = boot_seconds
        self._log_offset = log_offset  # where this incarnation's output begins

    @classmethod
    async def start(cls, plan: LaunchPlan) -> EngineProcess:
        # The key goes through a private file: arguments are readable by every user of the machine.
        config = plan.directory / "engine.yaml"
        config.touch(mode=0o600)
        config.write_text(json.dumps({"api-key": plan.api_key}))
        with (plan.directory / ENGINE_LOG).open("ab") as output:
            log_offset = output.tell()
            process = await asyncio.create_subprocess_exec(
                *command(plan),
                env=environment(plan),
                cwd=plan.directory,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                # Its own session: a stop signal to the job's group must not reach it before its groups are
                # given back.
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        log.info("engine started: pid %d, port %d", process.pid, plan.port)
        boot_seconds = CUDA_BOOT_SECONDS if plan.device == "cuda" else BOOT_SECONDS
        return cls(process, plan, boot_seconds=boot_seconds, log_offset=log_offset)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def wait(self) -> int:
        return await self._process.wait()

    @property
    def last_lines(self) -> str:
        """The end of what this incarnation wrote to its log, introduced for an error message."""
        tail = log_tail(self._plan.directory / ENGINE_LOG, offset=self._log_offset)
        tail = tail.replace(self._plan.api_key, "[key]")
        return f". The end of {ENGINE_LOG}:\n{tail}" if tail else f"; {ENGINE_LOG} has no line of it"

    async def wait_until_serving(self, client: EngineClient) -> None:
        """Until GET /model_info answers. Raises EngineUnavailable when the process ends or the time is over."""
        deadline = asyncio.get_running_loop().time() + self._boot_seconds
        while asyncio.get_running_loop().time() < deadline:
            if not self.alive:
                raise EngineUnavailable(
                    f"the engine ended with status {self._process.returncode} while it booted{self.last_lines}"
                )
            try:
                await client.weight_version(timeout=5.0)
                return
            except EngineError:
                await asyncio.sleep(0.25)
        raise EngineUnavailable(
            f"the engine did not answer /model_info within {self._boot_seconds:g} s{self.last_lines}"
        )

    async def stop(self, *, grace_seconds: float = 5.0) -> None:
        """End it and every process it started."""
        tree = _tree(self._process.pid)
        if self.alive:
            self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(grace_seconds):
                    await self._process.wait()
            except TimeoutError:
                log.warning("the engine ignored SIGTERM for %g s", grace_seconds)
        for process in tree:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        await self._process.wait()


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
