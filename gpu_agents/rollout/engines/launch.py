"""Run SGLang as a child process: command line, environment, shutdown.

On a CPU the same SGLang runs with `--device cpu` and torch's attention; a stub (cpu_kernel_stub) replaces the compiled
kernel package that it imports. It listens on loopback only, with a key per job.
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

from gpu_agents.rollout.engines.client import BOOT_VERSION, EngineClient
from gpu_agents.rollout.engines.errors import EngineError, EngineUnavailable
from oolong import cuda_host
from oolong.contracts.lora_adapter import engine_targets
from oolong.contracts.run_spec import LoraSection
from oolong.log_tail import log_tail

log = logging.getLogger(__name__)

GUARDED_PORTS = Path(__file__).parent / "guarded_ports"
CPU_KERNEL_STUB = Path(__file__).parent / "cpu_kernel_stub"
BOOT_SECONDS = 300.0
CUDA_BOOT_SECONDS = 900.0  # the first boot on a GPU compiles kernels and captures graphs
ENGINE_LOG = "engine.log"
LORA_SLOTS = 2  # adapters in device memory: that of the running requests, and room for the next one
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
    directory: Path  # the job's directory, with engine.log and engine.yaml
    visible_devices: str = ""  # CUDA_VISIBLE_DEVICES
    memory_fraction: float | None = None  # of GPU memory for weights and KV cache
    deterministic: bool = False  # a seeded request returns the same tokens in any batch
    lora: LoraSection | None = None  # versions are adapters for the booted model


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
        # At level info the log names the backends and the KV cache size. torch's sampler, because with the default one
        # a greedy request sends its whole batch through a kernel that is compiled during the run.
        arguments |= {"--log-level": "info", "--sampling-backend": "pytorch"}
        flags.append("--enable-fp32-lm-head")  # the trainer computes its logits in float32 too
        if plan.memory_fraction is not None:
            arguments |= {"--mem-fraction-static": plan.memory_fraction}
        if plan.deterministic:
            flags.append("--enable-deterministic-inference")
    if plan.lora is not None:
        arguments |= {"--max-lora-rank": plan.lora.rank, "--max-loras-per-batch": LORA_SLOTS}
        if plan.device == "cpu":
            arguments |= {"--lora-backend": "torch_native"}
        flags += ["--enable-lora", "--lora-target-modules", *engine_targets(plan.lora.targets)]
    options = [str(part) for pair in arguments.items() for part in pair]
    return [plan.node_python, "-m", "sglang.launch_server", *options, *flags]


def environment(plan: LaunchPlan) -> dict[str, str]:
    names = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR")
    inherited = {name: os.environ[name] for name in names if name in os.environ}
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
            inherited
            | common
            | {"SGLANG_USE_CPU_ENGINE": "1", "PYTHONPATH": f"{GUARDED_PORTS}:{CPU_KERNEL_STUB}"}
        )
    # SGLang compiles kernels with `ninja` from PATH, which is installed next to the node environment's Python.
    path = os.pathsep.join([str(Path(plan.node_python).parent), inherited.get("PATH", os.defpath)])
    on_gpu = {"PYTHONPATH": str(GUARDED_PORTS), "PATH": path, "CUDA_VISIBLE_DEVICES": plan.visible_devices}
    return inherited | cuda_host.environment(os.environ) | common | on_gpu


class EngineProcess:
    """One incarnation of an engine. The parent-death signal kills it when its worker ends."""

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
        # The key is passed in a private file: every user of the machine can read arguments.
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
                # A session of its own: a stop signal to the job's process group must not reach the engine before
                # its groups are released.
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
        """The end of this incarnation's log, formatted for an error message: the last line, then what precedes it."""
        tail = log_tail(self._plan.directory / ENGINE_LOG, offset=self._log_offset)
        tail = tail.replace(self._plan.api_key, "[key]")
        if not tail:
            return f"; {ENGINE_LOG} has no output of it"
        return f": {tail.splitlines()[-1].strip()}\nThe end of {ENGINE_LOG}:\n{tail}"

    async def wait_until_serving(self, client: EngineClient) -> None:
        """Wait until GET /model_info answers. Raises EngineUnavailable on exit or timeout."""
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
        """Stop the engine and all of its child processes."""
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
