"""`oolong pool provider …`"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from oolong.cli.output import notes
from oolong.cli.slurm.cluster import Cluster, NoSlurm, SlurmRefused, SlurmUnavailable
from oolong.cli.slurm.provider import Provider, ProviderIsRunning, State
from oolong.cli.slurm.types import JobOptions, Limits, Plan
from oolong.client import Client
from oolong.client.errors import ServerError, TooManyRequests, Unreachable

app = typer.Typer(no_args_is_help=True, help="Nodes from a cluster that exists already.")

LONGEST_WAIT = 300.0  # seconds between polls after Slurm has refused jobs
# What the provider sets itself: with another name it would not find its jobs again.
RESERVED = (
    "--job-name", "-J", "--array", "-a", "--output", "-o", "--wrap", "--nodes", "-N", "--ntasks", "-n", "--requeue",
)  # fmt: skip


@app.command()
def slurm(
    max_nodes: Annotated[int, typer.Option(min=1, help="Slurm jobs at once, pending ones included")],
    node_python: Annotated[
        str, typer.Option(help="on compute nodes: the Python with torch and SGLang (manage.py node-python)")
    ],
    pool: Annotated[str, typer.Option(help="the pool whose queue it serves")] = "default",
    gpus_per_node: Annotated[int, typer.Option(min=0, help="GPUs of a job; 0: CPU slots only")] = 8,
    cpu_slots: Annotated[int, typer.Option(min=1, help="slots of a job without GPUs, a core each")] = 4,
    slots_per_gpu: Annotated[int, typer.Option(min=1, max=8, help="slots on each GPU")] = 1,
    partition: Annotated[str | None, typer.Option(help="of Slurm")] = None,
    account: Annotated[str | None, typer.Option(help="of Slurm, which is charged")] = None,
    qos: Annotated[str | None, typer.Option(help="of Slurm")] = None,
    time_limit: Annotated[
        str | None, typer.Option("--time", help="of a job, as sbatch takes it; the partition's when left out")
    ] = None,
    idle_minutes: Annotated[
        float, typer.Option(min=0.1, help="without jobs of runs, after which an agent ends")
    ] = 10.0,
    sbatch_arg: Annotated[
        list[str] | None,
        typer.Option(help="one more argument of sbatch, such as --sbatch-arg=--mem=0; may be repeated"),
    ] = None,
    agent_arg: Annotated[
        list[str] | None,
        typer.Option(
            help="one more argument of the agent, such as --agent-arg=--model-root=/models; may be repeated"
        ),
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(help="on compute nodes: the Python with Oolong's agent; this one when left out"),
    ] = None,
    data_root: Annotated[
        str,
        typer.Option(help="on compute nodes: where agents keep their files; $TMPDIR or /tmp when left out"),
    ] = "",
    server: Annotated[
        str | None, typer.Option(help="URL of the control plane for agents; this command's when left out")
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(help="a directory that compute nodes see too; ~/.oolong/slurm/NAME when left out"),
    ] = None,
    interval: Annotated[float, typer.Option(min=1, help="seconds between polls")] = 10.0,
    once: Annotated[bool, typer.Option("--once", help="poll once, then exit")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what it would do, and do nothing")] = False,
) -> None:
    """Submit GPU agents as Slurm jobs while runs of a pool wait for slots; cancel pending ones that nothing needs.

    Run it on a login node, as the user whose jobs they are to be, and with a token of a pool admin (scopes pool:read
    and pool:admin). Agents drain before their job's time limit, and end when they are idle.
    """
    for argument in sbatch_arg or ():
        if argument.partition("=")[0] in RESERVED:
            raise TyperException(f"--sbatch-arg {argument!r}: the provider sets this itself")
    named = {"partition": partition, "account": account, "qos": qos, "time": time_limit}
    arguments = [f"--{name}={value}" for name, value in named.items() if value]
    arguments.append(f"--gpus-per-node={gpus_per_node}" if gpus_per_node else f"--cpus-per-task={cpu_slots}")
    device = "cuda" if gpus_per_node else "cpu"
    slots = gpus_per_node * slots_per_gpu if gpus_per_node else cpu_slots
    with Client() as client:
        address = (server or client.settings.url).rstrip("/")
        # Two installations may serve the same cluster, and two pools of one as well.
        name = f"oolong-{pool}-{hashlib.sha256(client.settings.url.encode()).hexdigest()[:6]}"
        state = State((state_dir or Path.home() / ".oolong" / "slurm" / name).resolve())
        options = JobOptions(
            server=address, python=python or Path(sys.executable), node_python=node_python, slots=slots,
            device=device, slots_per_gpu=slots_per_gpu, idle_minutes=idle_minutes, data_root=data_root,
            agent_arguments=tuple(agent_arg or ()),
        )  # fmt: skip
        provider = Provider(
            client, pool, Cluster(name), state, Limits(max_nodes, slots, device), options,
            [*arguments, *(sbatch_arg or ())], note=lambda line: notes.print(line, markup=False),
        )  # fmt: skip
        try:
            if dry_run:
                _show(provider.look())
            else:
                with state.locked():
                    _serve(provider, interval=interval, once=once)
        except (NoSlurm, ProviderIsRunning, SlurmUnavailable, SlurmRefused) as error:
            raise TyperException(str(error)) from error
        except KeyboardInterrupt:
            notes.print(
                "the provider ends; its Slurm jobs continue, and the next one finds them", markup=False
            )


def _serve(provider: Provider, *, interval: float, once: bool) -> None:
    """Poll until interrupted. What may pass is reported and tried again; with `once` every error ends the command."""
    wait = interval
    while True:
        try:
            provider.act(provider.look())
            wait = interval
        except (SlurmUnavailable, SlurmRefused, Unreachable, ServerError, TooManyRequests) as error:
            if once:
                raise
            wait = min(LONGEST_WAIT, 2 * wait)
            notes.print(f"error: {error}; trying again in {wait:g} s", markup=False)
        if once:
            return
        time.sleep(wait)


def _show(decided: Plan) -> None:
    print(f"would submit {decided.submit} Slurm jobs")
    for job in decided.cancel:
        print(f"would cancel Slurm job {job}")
    for node in decided.remove:
        print(f"would remove node {node}")
    for line in decided.notes:
        print(line)
