"""PAI on MaxCompute: one command of its language, submitted by odpscmd with the packed project."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from xdpx.config.faults import Fault
from xdpx.launch import script
from xdpx.launch.backends import pai_package
from xdpx.launch.backends.local import read_log
from xdpx.launch.node_script import PORT, Meeting, faults_of_several, node_script
from xdpx.launch.programs import absent, ask
from xdpx.launch.submission import TOGETHER, Job, Launcher, Reach, Record, Resources, Submitted, refusal, unused
from xdpx.utils import io

COMMAND, LOG, CODE = "pai.txt", "odpscmd.txt", "exit_code"
USED = ("nodes", "gpus", "cpus", "memory", "pytorch", "v100", "tables", "tensorflow")
VERSIONS = ("100", "131", "151", "180")
BOUNDS = {"nodes": (1, 8), "gpus": (1, 8), "cpus": (1, 64), "memory": (2, 128)}
DEFAULTS = {"pytorch": "180", "cpus": "4", "memory": "10", "v100": "n"}
"""For options that are not given; the numbers of workers and GPUs have no default here, as they cost money."""

FLAGS = {"pytorch": "-v", "nodes": "-w", "gpus": "-g", "cpus": "-c", "memory": "-m", "v100": "-s", "tables": "-t"}
"""{field of Resources: flag of pai.sh}"""

TAKEN_APART = "131"
"""With this version, docker fusion splits workers with several GPUs into workers with one."""

V100_LINE = "set odps.algo.hybrid.deploy.info=LABEL:V100:OPER_EQUAL;"
PYTHON_OF_IMAGES = "3.6"
REMEDY = "Is odpscmd configured (conf/odps_config.ini), and does the account own the project?"
SECONDS_UNTIL_LOGVIEW = 600.0
_RUN = 'umask 077; odpscmd -e "$1" > "$2" 2>&1; echo "$?" > "$3.new"; rm -f "$4"; mv "$3.new" "$3"'
"""Deletes the package after it was submitted, as it may contain credentials of the project."""

_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?")


class Pai:
    """Submits the project as a package. odpscmd stays in the background and writes the messages of PAI into a file."""

    files_there: Reach = "packed"
    launcher: Launcher = "script"

    def faults(self, job: Job) -> Iterator[Fault]:
        """Yield requirements that PAI cannot meet, values out of its bounds, and flags that it does not use."""
        asked = job.resources
        yield from unused(asked, USED, "--on pai")
        yield from faults_of_several(job, "--on pai")
        yield from bound_faults(asked)
        if asked.tables and not all(table.startswith("odps://") for table in asked.tables.split(",")):
            yield Fault(
                "--tables", f"is '{asked.tables}'.", "Write odps://<project>/tables/<table>, separated by commas."
            )
        if job.num_tasks > 1 and asked.tasks:
            yield Fault("--tasks", "is not given by PAI, which has no arrays.", "Send the tasks one by one.")
        if is_fused(asked):
            yield from _fusion_faults(job)

    def hindrances(self, job: Job) -> Iterator[Fault]:
        """Yield what prevents submitting from this machine."""
        yield from absent("odpscmd", "Install the MaxCompute client and put its bin/ on the PATH.")
        yield from pai_package.faults(io.abspath("."))

    def files(self, job: Job) -> dict[str, str]:
        """Return the command, the script of a worker, and the file that starts it."""
        return {
            COMMAND: f"{command(job, _package(job))}\n",
            pai_package.SCRIPT: _script(job),
            pai_package.ENTRY: pai_package.ENTRY_TEXT,
        }

    def line(self, job: Job) -> str:
        """Return the shell command that submits the package."""
        return shlex.join(["odpscmd", "-e", command(job, _package(job))])

    def submit(self, job: Job, folder: str) -> Submitted:
        """Pack and submit the project; return the id of the instance and the address of its logview."""
        pai_package.write(_package(job), project=io.abspath("."), folder=folder)
        text, log, code = command(job, _package(job)), io.join(folder, LOG), io.join(folder, CODE)
        words = ["bash", "-c", _RUN, "bash", text, log, code, _package(job)]
        nothing = subprocess.DEVNULL
        subprocess.Popen(words, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
        return _first_words(text, log, code)

    def status(self, record: Record) -> str:
        """Return the state of the instance from odpscmd."""
        return ask(["odpscmd", "-e", f"status {record.id};"], what="pai does not answer", remedy=REMEDY).strip()

    def logs(self, record: Record) -> str:
        """Return the messages of PAI so far, without repetitions."""
        told = read_log(io.join(record.folder, LOG)).splitlines()
        return "\n".join(without_repetitions(told))

    def cancel(self, record: Record) -> str:
        """Kill the instance."""
        ask(["odpscmd", "-e", f"kill {record.id};"], what="pai did not end it", remedy=REMEDY)
        return f"{record.name}: asked to end (instance {record.id})."


def with_defaults(resources: Resources) -> Resources:
    """Return the resources with the documented defaults for options that are not given."""
    missing = {name: value for name, value in DEFAULTS.items() if getattr(resources, name) is None}
    return Resources.model_validate({**resources.model_dump(), **missing})


def bound_faults(resources: Resources) -> Iterator[Fault]:
    """Yield a fault for each value that PAI does not accept."""
    for name, (least, most) in BOUNDS.items():
        value = getattr(resources, name)
        if name == "gpus" and value == 0:
            yield Fault("--gpus", "is not given.", f"PAI wants {least} to {most} for each worker (pai.sh: -g).")
        elif value is not None and not least <= value <= most:
            remedy = f"Use {least} to {most} (pai.sh: {FLAGS[name]}; a config: __{_key(name)}__)."
            yield Fault(f"--{name}", f"is {value:g}.", remedy)
    if resources.pytorch is not None and resources.pytorch not in VERSIONS:
        remedy = f"PAI has {', '.join(VERSIONS)} (pai.sh: -v; a config: __pytorch__)."
        yield Fault("--pytorch", f"is '{resources.pytorch}'.", remedy)


def _key(name: str) -> str:
    return {"nodes": "worker", "gpus": "gpu", "cpus": "cpu"}.get(name, name)


def layout(resources: Resources) -> tuple[int, int]:
    """Return (workers, GPUs of each) to request from PAI."""
    if resources.nodes > 1 and (resources.pytorch or DEFAULTS["pytorch"]) == TAKEN_APART:
        return resources.nodes * resources.gpus, 1
    return resources.nodes, resources.gpus


def is_fused(resources: Resources) -> bool:
    """Return whether docker fusion applies: several workers with one GPU each, which then share machines."""
    workers, gpus = layout(resources)
    return workers > 1 and gpus == 1


def _fusion_faults(job: Job) -> Iterator[Fault]:
    """Yield a fault for several trainings under docker fusion: from the second one on, NCCL cannot connect."""
    count = max(sum(step.command in TOGETHER for step in job.steps), job.runs)
    if count > 1:
        problem = f"are {count}, one after another; under docker fusion, the second and later ones hang."
        remedy = "Send them one by one, or ask for one worker with several GPUs (-w 1 -g N)."
        yield Fault("trainings", problem, remedy)


def command(job: Job, package: str) -> str:
    """Return the command for odpscmd.

    Args:
        job: its commands are passed to PAI for its records only; the script in the package is what runs.
        package: local path of the packed project.
    """
    asked = with_defaults(job.resources)
    workers, gpus = layout(asked)
    memory = round(1000 * (asked.memory or 0))
    words = shlex.join(word for step in job.steps for word in step.words)
    options = {
        "script": f"file://{package}",
        "entryFile": pai_package.ENTRY,
        "userDefinedParameters": words,
        "python": PYTHON_OF_IMAGES,
        "cluster": f'{{"worker":{{"cpu":{100 * (asked.cpus or 0)},"memory":{memory},"gpu":{100 * gpus}}}}}',
        "workerCount": str(workers),
        **({"enableDockerFusion": "true"} if is_fused(asked) else {}),
        **({"tables": asked.tables} if asked.tables else {}),
    }
    lines = [f"pai -name pytorch{asked.pytorch}", *(f"    -D{name}={quoted(text)}" for name, text in options.items())]
    return "\n".join([*([V100_LINE] if asked.v100 else []), *lines]) + ";"


def quoted(text: str) -> str:
    """Return a value for the command language of MaxCompute, in quotes unless it is plain."""
    if re.fullmatch(r"[\w./:-]+", text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _package(job: Job) -> str:
    return io.join(io.abspath("."), "submissions", job.name, pai_package.PACKAGE)


def _script(job: Job) -> str:
    """Return the script of a worker, which runs in the folder of the unpacked project."""
    workers, gpus = layout(job.resources)
    there = replace(
        job, workdir=".", folder="submission", python=script.Variable("$XDPX_PYTHON"),
        resources=job.resources.model_copy(update={"nodes": workers, "gpus": gpus}),
        environment={"PYTHONPATH": ".", "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    setup = ""
    if job.resources.tensorflow:
        setup = (
            '"$XDPX_PYTHON" -c "import tensorflow" 2>/dev/null '
            "|| \"$XDPX_PYTHON\" -m pip install --quiet 'tensorflow>=2.20' || exit 1"
        )
    meeting = Meeting("${RANK:-0}", "${MASTER_ADDR:-127.0.0.1}", f"${{MASTER_PORT:-{PORT}}}")
    return node_script(there, meeting, how=f"bash {pai_package.SCRIPT}", task="${RANK:-0}", setup=setup)


def _first_words(text: str, log: str, code: str) -> Submitted:
    """Wait until PAI has printed the id of the instance and the address of its log, and return them.

    Raises:
        Refused: odpscmd ended before, or there was no address within ten minutes.
    """
    end = time.monotonic() + SECONDS_UNTIL_LOGVIEW
    while time.monotonic() < end:
        ended = io.isfile(code)
        said = read_log(log) if io.isfile(log) else ""
        address = re.search(r"^\s*(https?://\S+)\s*$", said, re.MULTILINE)
        if address:
            found = re.search(r"^\s*ID\s*=\s*(\S+)", said, re.MULTILINE) or re.search(r"[?&]i=(\w+)", address[1])
            return Submitted(found[1] if found else "", address[1])
        if ended:
            raise refusal("pai did not take the job", ["odpscmd", "-e", text], said, REMEDY)
        time.sleep(0.1)
    raise refusal("pai did not take the job", ["odpscmd", "-e", text], f"no address of a log in {log}", REMEDY)


def without_repetitions(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines, except those that differ from the line before them only in the time."""
    before = None
    for line in lines:
        said = _TIME.sub("", line.rstrip())
        if said != before or not said:
            yield line.rstrip()
        before = said


def follow(record: Record) -> Iterator[str]:
    """Yield the messages of PAI line by line until odpscmd has ended. The job survives the end of the caller."""
    return without_repetitions(_lines_to_come(io.join(record.folder, LOG), io.join(record.folder, CODE)))


def _lines_to_come(log: str, code: str) -> Iterator[str]:
    with io.open(log, encoding="utf-8", errors="replace") as file:
        part = ""
        while True:
            ended = io.isfile(code)
            part += file.readline()
            if part.endswith("\n") or (part and ended):
                yield part
                part = ""
            elif ended:
                return
            else:
                time.sleep(0.2)


def exit_code_of(record: Record) -> int:
    """Return the exit code of odpscmd, which must have ended."""
    with io.open(io.join(record.folder, CODE), encoding="utf-8") as file:
        text = str(file.read()).strip()
    return int(text) if text.isdecimal() else 1
