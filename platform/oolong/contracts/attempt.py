"""What an agent writes down for the jobs of an attempt: `attempt.json`, and `job.json` per job incarnation.

Every job is started as `python -m <module> --attempt <attempt.json> --job <job directory>` and holds no
control-plane credentials: it reads these two files, talks to the attempt's controller, and leaves lines in
the outbox of its job directory.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from oolong.contracts.lifecycle import EndReason, JobKind
from oolong.contracts.lora_adapter import AdapterBase, WeightsReference
from oolong.contracts.run_spec import RunSpec
from oolong.redaction import of_this_job
from oolong.untrusted import clean_text


class PeerListenerFile(msgspec.Struct, frozen=True, kw_only=True):
    """Where the jobs of the trainer's node listen for engines on other nodes, with TLS."""

    address: str
    certificate: str
    private_key: str
    weights_port: int


class TrainerGangFile(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a trainer whose ranks are on several."""

    address: str  # peer address of node 0, where the ranks meet
    port: int
    nodes: int
    node_rank: int  # of this node
    interface: str  # network interface of this node's peer address


class AttemptFile(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    attempt_id: str
    attempt_number: int  # 1, 2, ...
    epoch: int  # fencing epoch of the attempt; higher wins
    spec: dict[str, object]  # the resolved RunSpec as JSON; use `run_spec`
    directory: str  # the attempt's directory on this node
    model_directory: str  # Hugging Face directory of the initial weights
    initial_weights: WeightsReference = WeightsReference()  # what they are in the registry
    dataset_file: str  # canonical rows (JSONL, see CanonicalRow)
    evaluation_file: str | None = None
    resume_directory: str | None = None  # a committed checkpoint to resume from; None on a first attempt
    tokens_generated_before: int = 0  # by earlier attempts of the run, as far as they told
    source_files: dict[
        str, str
    ] = {}  # uploaded source by contracts.user_code.SourceKind: {"reward": "…/reward.py"}
    controller_url: str = ""  # http://127.0.0.1:PORT, or https:// of the trainer's node; rl only
    reward_url: str = ""
    engine_ports: list[int] = []  # one port per engine, fixed at lease time
    session_ports: list[int] = []  # one per engine, where the run serves agent sessions
    playground_port: int = 0  # where a playground's job is chatted with
    token: str = ""  # bearer token of the controller and the reward service
    node_python: str = ""  # python of the node environment (torch, sglang)
    device: str = "cpu"  # cpu | cuda
    gpu_share: float = 1.0  # of a GPU's memory that one slot stands for; below 1 where slots share GPUs
    evaluators: bool = False  # an evaluation may get an idle slot of this node, beside the run's engines
    listener: PeerListenerFile | None = None  # None: no engine of the attempt may be on another node
    weights_url: str = (
        ""  # on the trainer's node; "": this is that node, and weights are in `weights_directory`
    )
    certificate: str = ""  # of the servers on the trainer's node, when that is another one
    gang: TrainerGangFile | None = None  # None: all ranks of the trainer are on one node
    reward_origins: list[str] = []  # of the services that the reward job may ask

    @property
    def run_spec(self) -> RunSpec:
        """The spec, with the type of computing that this node's device has by default."""
        spec = RunSpec.model_validate(self.spec)
        return spec.model_copy(update={"trainer": spec.trainer.on_device(self.device)})

    @property
    def adapter_base(self) -> AdapterBase | None:
        """What the adapters of a LoRA run are for. None: the run trains all weights."""
        spec = self.run_spec
        if spec.model.lora is None:
            return None
        return AdapterBase(**msgspec.structs.asdict(self.initial_weights), dtype=spec.trainer.compute_type)

    @property
    def weights_directory(self) -> Path:
        """Published weights: one directory per version, `v00000012`."""
        return Path(self.directory) / "weights"

    @property
    def checkpoints_directory(self) -> Path:
        return Path(self.directory) / "checkpoints"


class JobFile(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str
    name: str  # controller, reward, rollout-0, rollout-1, evaluator-2, trainer
    kind: JobKind
    index: int = 0
    incarnation: int = 0  # counts restarts in place
    engine_port: int = 0  # of an engine that joins a live run; 0: the attempt's engine_ports[index]
    session_port: int = 0  # likewise
    evaluates: str = ""  # of an evaluator: the task that it is there for (contracts.rollout.EvaluationTask)
    slots: list[str] = []  # slot ids that the job holds; GPU UUIDs on CUDA nodes


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """`result.json`, written by a job (write, fsync, rename) just before it ends by its own decision."""

    reason: EndReason
    message: str = ""


class CanonicalRow(msgspec.Struct, frozen=True, kw_only=True):
    """One dataset row as stored: one JSON object per line, keys in this order."""

    row: int  # 0-based position in the version
    split: str
    messages: list[dict[str, str]]  # chat messages {"role", "content"}, rendered from the template
    answer: str
    completion: str | None = None  # demonstration for sft
    chosen: list[dict[str, str]] | msgspec.UnsetType = (
        msgspec.UNSET
    )  # the better continuation of a pair, for dpo
    rejected: list[dict[str, str]] | msgspec.UnsetType = (
        msgspec.UNSET
    )  # the worse one; begins and ends as chosen
    source: str = ""  # which collection the row comes from, e.g. gsm8k; "" without a source column


# --- files of a job directory -----------------------------------------------------------------------------

ATTEMPT_FILE = "attempt.json"
JOB_FILE = "job.json"
RESULT_FILE = "result.json"
READY_FILE = "ready"  # left by a job once it serves: this incarnation has started well
LOG_FILE = "output.log"  # stdout and stderr together, written by the supervisor
EXIT_FILE = "exit.json"  # written by the supervisor: {"code": int, "at": seconds}
OUTBOX_DIRECTORY = "outbox"  # *.jsonl files, see contracts.telemetry


def read_attempt(path: str | Path) -> AttemptFile:
    return msgspec.json.decode(Path(path).read_bytes(), type=AttemptFile)


def read_job(job_directory: str | Path) -> JobFile:
    return msgspec.json.decode((Path(job_directory) / JOB_FILE).read_bytes(), type=JobFile)


def write_result(job_directory: str | Path, result: JobResult) -> None:
    """Leave the job's own result where its agent looks for it, without the secrets that its message may quote."""
    import os

    result = msgspec.structs.replace(result, message=clean_text(of_this_job().text(result.message)))
    target = Path(job_directory) / RESULT_FILE
    temporary = target.with_suffix(".tmp")
    with temporary.open("wb") as file:
        file.write(msgspec.json.encode(result))
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(target)


def mark_ready(job_directory: str | Path) -> None:
    """Say that this incarnation serves. Incarnations that end without it count as failed starts of the job."""
    (Path(job_directory) / READY_FILE).touch()
