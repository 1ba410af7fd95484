"""A real two-node Slurm on this machine, with its own folder and ports: munged, slurmctld and two slurmd."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path

from tests import processes
from tests.faults.resume_harness import in_child
from xdpx import run as door
from xdpx.launch import folders

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue")
CONF = """
ClusterName=xdpx
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=30
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,defer_batch=no
MinJobAge=600
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2 RealMemory=4000 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=debug Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=REQUEUE
PartitionName=high Nodes=n[1-2] MaxTime=INFINITE State=UP PriorityTier=100 PreemptMode=OFF
"""


def missing() -> str:
    """Return why Slurm cannot run here; '' if it can."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    absent = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    return f"not installed here: {', '.join(absent)}" if absent else ""


@contextlib.contextmanager
def cluster(folder: Path) -> Generator[None]:
    """Run Slurm while entered, with SLURM_CONF set; its processes end with it.

    Raises:
        RuntimeError: it did not start; the message has its logs.
    """
    host = subprocess.run(["hostname", "-s"], capture_output=True, text=True, check=True).stdout.strip()
    user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    ports = {name: processes.free_port() for name in ("port", "first", "second")}
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(host=host, user=user, folder=folder, **ports))
    (folder / "state").mkdir()
    for node in ("n1", "n2"):
        (folder / f"spool-{node}").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    folder.chmod(0o755)
    around = {"SLURM_CONF": str(conf), "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
    before = {name: os.environ.get(name) for name in around}
    os.environ.update(around)
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("log", "pid", "seed")]
    lines = [
        ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket", *munge],
        ["slurmctld", "-D", "-i"],
        ["slurmd", "-D", "-N", "n1"],
        ["slurmd", "-D", "-N", "n2"],
    ]
    running = []
    try:
        for line in lines:
            running.append(_start(line, folder))
            if line[0] == "munged":
                _wait_for(lambda: (folder / "munge.socket").exists(), folder)
        _wait_for(_is_up, folder)
        try:
            yield
        finally:  # jobs outlive the slurmd that started them
            subprocess.run(["scancel", "--signal=KILL", "--full", f"--user={user}"], check=False, timeout=30)
            time.sleep(1)
    finally:
        for process in reversed(running):
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _start(line: list[str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "words.txt").open("ab") as file:
        return subprocess.Popen(line, stdout=file, stderr=file)


def _is_up() -> bool:
    found = subprocess.run(["sinfo", "--noheader", "--format=%D %t"], capture_output=True, text=True, check=False)
    return found.stdout.split()[:2] == ["2", "idle"]


def _wait_for(condition: Callable[[], object], folder: Path) -> None:
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            words = "".join(path.read_text(errors="replace")[-2000:] for path in sorted(folder.glob("*.log")))
            raise RuntimeError(f"Slurm did not come up: {(folder / 'words.txt').read_text()[-2000:]}\n{words}")
        time.sleep(0.1)


def state(job: str) -> str:
    """Return the state of a job as shown by squeue, such as RUNNING; distinct states if there are several tasks."""
    line = ["squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}"]
    found = subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()
    return " ".join(dict.fromkeys(found))


def wait_until(job: str, wanted: str, *, seconds: float = 400) -> None:
    """Wait until a job is in a state; start a requeued job at once.

    Slurm holds a requeued job for two minutes, unless StartTime=now is set.
    """
    end = time.monotonic() + seconds
    while (now := state(job)) != wanted:
        assert time.monotonic() < end, f"job {job} is {now}, not {wanted}"
        assert now not in {"FAILED", "CANCELLED", "COMPLETED", "TIMEOUT", "NODE_FAIL"} - {wanted}, f"job {job} is {now}"
        if now == "PENDING" and wanted != "PENDING":
            time.sleep(2)  # a start in the same second as the requeue is refused: "credential revoked"
            subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], capture_output=True, check=False)
        time.sleep(0.2)


def submit(*words: str) -> folders.Record:
    """Submit a command to Slurm, and return the record of the job."""
    before = {record.name for record in folders.records()}
    words_of_all = ("--on", "slurm", "--partition", "debug", "--yes")
    code = in_child(lambda: door.main(["x-submit", *words, *words_of_all]), Path("out.txt"))
    assert code == 0, Path("out.txt").read_text()
    (record,) = [record for record in folders.records() if record.name not in before]
    return record


def told(record: folders.Record) -> str:
    """Return the output of all tasks of a job."""
    return "".join(path.read_text() for path in Path(record.folder).glob("log-*.txt"))


def wait_for(condition: Callable[[], object], what: str, *, seconds: float = 300) -> None:
    """Wait until a condition holds; `what` describes it in the error."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def wait_for_line(log: Path, word: str) -> None:
    """Wait until a log contains a word."""
    wait_for(lambda: log.exists() and word in log.read_text(), f"{log} never said '{word}'")
