"""A Slurm cluster on this machine: munged, slurmctld and two slurmd, from packages of Debian that are unpacked, not
installed. The packages are pinned by their hashes and fetched at first use."""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import secrets
import socket
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from local_stack.files import file_lock
from local_stack.paths import checkout_paths
from tests.support.ports import reserve_port
from tests.support.stack import until

ROOT = Path(__file__).resolve().parents[2]
MIRROR = "http://deb.debian.org/debian/pool/main"  # what it sends is checked
PACKAGES = {
    "h/hwloc/libhwloc15_2.9.0-1_amd64.deb": "4e7194b5d9adbb1a7d11a9501a4be4a4fa22876b69c73b7998056f552962c0e4",
    "m/munge/libmunge2_0.5.15-2+deb12u1_amd64.deb": "533a38220c7f2a38a1130f5f80033d1a07723880fa352299b22a10ba99ce826e",
    "m/munge/munge_0.5.15-2+deb12u1_amd64.deb": "a5d4c6eb1229dda19bb37040872edc275f581c8d8d820df4bc45cb1f82955334",
    "s/slurm-wlm/slurm-wlm-basic-plugins_22.05.8-4+deb12u3_amd64.deb": (
        "7aa42186e5a3ca78d14832514ed6ab3499ca95d5d7617a03a1dac86bda109a8e"
    ),
    "s/slurm-wlm/slurm-client_22.05.8-4+deb12u3_amd64.deb": (
        "da1f62530f6bd2ded29b1db38db6875d544952c6ce02505ffc3e812506dce856"
    ),
    "s/slurm-wlm/slurmctld_22.05.8-4+deb12u3_amd64.deb": (
        "52322632ea071bcbdbed2f3dd16462760c9444198bc91bba507e6bf97ae8c2b2"
    ),
    "s/slurm-wlm/slurmd_22.05.8-4+deb12u3_amd64.deb": (
        "c88bf805e9770505eb08c78cbf09e9f09ce7eb2bd034f05f89965a2d658def0d"
    ),
}
FETCH_SECONDS = 60.0
READY_SECONDS = 60.0
NODES = ("n1", "n2")


class SlurmUnavailable(Exception):
    """The message says why Slurm cannot run here."""


def ensure_slurm() -> Path:
    """The folder with the unpacked packages. Raises SlurmUnavailable when they cannot be fetched or do not run."""
    shelf = checkout_paths(ROOT).home / "slurm"
    name = hashlib.sha256("".join(PACKAGES.values()).encode()).hexdigest()[:12]
    with file_lock(shelf / "lock"):
        ready = shelf / name
        if not ready.exists():
            half = shelf / f"{name}.{secrets.token_hex(4)}"
            for package, sha256 in PACKAGES.items():
                _unpack(_fetch(package, sha256), half)
            half.rename(ready)
    cluster = SlurmCluster(ready, Path("/nonexistent"))
    for program in ("usr/sbin/munged", "usr/sbin/slurmctld-wlm", "usr/sbin/slurmd-wlm"):
        found = subprocess.run(
            [ready / program, "-V"], env=cluster.environment(), capture_output=True, text=True, timeout=60
        )
        if found.returncode != 0:
            raise SlurmUnavailable(f"{program} does not run here: {found.stderr.strip()}")
    return ready


def _fetch(package: str, sha256: str) -> bytes:
    url = f"{MIRROR}/{package}"
    try:
        with urllib.request.urlopen(url, timeout=FETCH_SECONDS) as answer:
            data: bytes = answer.read()
    except (urllib.error.URLError, TimeoutError) as error:
        raise SlurmUnavailable(f"{url} cannot be fetched: {error}") from error
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise RuntimeError(f"{url} has the SHA-256 {found}, and {sha256} is pinned")
    return data


def _unpack(package: bytes, folder: Path) -> None:
    """A package is an `ar` archive: after 8 bytes, members with a header of 60 bytes, padded to even length."""
    at = 8
    while at < len(package):
        name, size = package[at : at + 16].decode().strip(), int(package[at + 48 : at + 58])
        at += 60
        if name.startswith("data.tar.xz"):
            with tarfile.open(fileobj=io.BytesIO(lzma.decompress(package[at : at + size]))) as archive:
                archive.extractall(folder, filter="data")
        at += size + size % 2


@dataclass
class SlurmCluster:
    programs: Path
    folder: Path
    cpus: int = 4  # of each of its two nodes, whatever the machine has
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        """For the commands of Slurm."""
        libraries = self.programs / "usr/lib/x86_64-linux-gnu"
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("OOLONG_")},
            "PATH": f"{self.programs / 'usr/bin'}:{os.environ['PATH']}",
            "LD_LIBRARY_PATH": f"{libraries}:{libraries / 'slurm-wlm'}",
            "SLURM_CONF": str(self.folder / "slurm.conf"),
        }

    def run(self, *words: str) -> str:
        done = subprocess.run(
            words, env=self.environment(), capture_output=True, text=True, timeout=60, cwd=self.folder
        )
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout.strip()

    def jobs(self) -> dict[str, str]:
        """ID → state of the jobs that Slurm lists."""
        return dict(line.split("|", 1) for line in self.run("squeue", "--noheader", "--format=%i|%T").split())

    def start(self) -> None:
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        (self.folder / "plugstack.conf").touch()
        (self.folder / "slurm.conf").write_text(self._configuration())
        for name in ("state", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir()
        words = [f"--{name}={self.folder / file}" for name, file in (
            ("key-file", "munge.key"), ("socket", "munge.sock"), ("pid-file", "munged.pid"),
            ("seed-file", "munge.seed"), ("log-file", "munged.log"),
        )]  # fmt: skip
        self._start("munged", [*words, "--foreground", "--force"])
        until((self.folder / "munge.sock").exists, seconds=READY_SECONDS, what="munged", said=self.said)
        self._start("slurmctld-wlm", ["-D"])
        stepd = self.programs / "usr/sbin/slurmstepd-wlm"
        for node in NODES:
            self._start("slurmd-wlm", ["-D", "-N", node, "-d", str(stepd)])
        until(
            lambda: self._states() == {"idle"},
            seconds=READY_SECONDS,
            what="the nodes are idle",
            said=self.said,
        )

    def close(self) -> None:
        for job in self.jobs() if self.processes else ():
            self.run("scancel", "--signal=KILL", "--full", job)
        try:
            if self.processes:
                until(lambda: not self.jobs(), seconds=60, what="no jobs", said=self.said)
        finally:
            for process in reversed(self.processes):
                process.terminate()
            for process in self.processes:
                process.wait(timeout=60)
            self.processes.clear()

    def said(self) -> str:
        logs = sorted([*self.folder.glob("*.log"), *self.folder.glob("**/logs/*.log")])
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}" for log in logs)

    def _states(self) -> set[str]:
        done = subprocess.run(
            ["sinfo", "--noheader", "--Node", "--format=%T"], env=self.environment(), capture_output=True,
            text=True, timeout=60,
        )  # fmt: skip
        return set(done.stdout.split())

    def _start(self, program: str, words: list[str]) -> None:
        with (self.folder / f"{program}.out.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    [str(self.programs / "usr/sbin" / program), *words], env=self.environment(), cwd=self.folder,
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                )
            )  # fmt: skip

    def _configuration(self) -> str:
        host, user = socket.gethostname(), os.getuid()
        nodes = "\n".join(
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={reserve_port()} CPUs={self.cpus}"
            for node in NODES
        )
        return f"""
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={reserve_port()}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={self.folder}/munge.sock
PluginDir={self.programs}/usr/lib/x86_64-linux-gnu/slurm-wlm
PlugStackConfig={self.folder}/plugstack.conf
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool-%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd-%n.pid
SlurmctldLogFile={self.folder}/slurmctld.log
SlurmdLogFile={self.folder}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MailProg=/bin/true
{nodes}
PartitionName=main Nodes={",".join(NODES)} Default=YES MaxTime=60 State=UP
"""


@contextmanager
def running_cluster(folder: Path) -> Iterator[SlurmCluster]:
    """A cluster that is gone, with its jobs, at the end."""
    folder.mkdir(mode=0o711)
    cluster = SlurmCluster(ensure_slurm(), folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


if __name__ == "__main__":
    sys.stdout.write(f"{ensure_slurm()}\n")
