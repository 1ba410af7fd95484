"""The script for one machine of a job, for places that start one container or one command per machine.

torchrun would turn every exit code into 1, and kill a run that needs over 30 seconds to save. This script starts the
processes of a machine with the variables of torchrun, passes SIGTERM on, waits until they end, and keeps code 85.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdpx.config.faults import Fault
from xdpx.launch import script
from xdpx.launch.submission import Job, JobStep
from xdpx.training.preemption import EXIT_CODE
from xdpx.utils.distributed_utils import LOST_PEER_CODE

PORT = 29500
"""Rendezvous port of the first step; each later step uses the next one, as closed sockets linger."""

RUN = f"""
# run COUNT COMMAND...: so many processes of it here. One that fails ends the others, after 10 seconds for last words.
run() {{
    local count=$1 codes=() children=() code=0 deadline= asked= index left
    shift
    trap 'asked=TERM; end_them TERM' TERM INT
    for ((index = 0; index < count; index++)); do
        process "$@" &
        children+=($!)
    done
    if [ -n "$asked" ]; then end_them TERM; fi  # of those that were started since, none had a number yet
    while :; do
        left=
        for index in "${{!children[@]}}"; do
            if [ -n "${{codes[index]:-}}" ]; then :  # no `continue`: bash skips a trap that is due just then
            elif kill -0 "${{children[index]}}" 2>/dev/null; then left=1
            else
                wait "${{children[index]}}"; codes[index]=$?
                # 143: it had nothing to save yet; -1: bash 5.2 has lost the code of one that ended as a signal came.
                case $asked${{codes[index]}} in TERM143|TERM-1) codes[index]={EXIT_CODE} ;; esac
                case ${{codes[index]}} in
                    0) ;;
                    {EXIT_CODE}) case $code in 0) code={EXIT_CODE} ;; esac ;;
                    {LOST_PEER_CODE}) case $code in 0|{EXIT_CODE}) code={LOST_PEER_CODE} ;; esac ;;
                    *) case $code in 0|{EXIT_CODE}|{LOST_PEER_CODE}) code=${{codes[index]}} ;; esac ;;
                esac
                case ${{codes[index]}} in 0|{EXIT_CODE}) ;; *) deadline=${{deadline:-$((SECONDS + 10))}} ;; esac
            fi
        done
        if [ -z "$left" ]; then return "$code"; fi
        if [ -n "$deadline" ] && [ "$SECONDS" -ge "$deadline" ]; then end_them KILL; fi
        sleep 0.5 & wait $!  # which a signal ends, unlike a sleep
    done
}}
""".strip("\n")
"""A bash function: starts processes by the function `process`, waits for them, and ends them by `end_them`."""

END = 'end_them() { kill -"$1" "${children[@]}" 2>/dev/null; }'


@dataclass(frozen=True)
class Meeting:
    """How the machines of a job find each other, as bash words that are expanded at the place.

    Attributes:
        index: number of this machine, from 0.
        address: of the first machine.
        port: rendezvous port on the first machine.
    """

    index: str = "0"
    address: str = "127.0.0.1"
    port: str = str(PORT)


def node_script(job: Job, meeting: Meeting, *, how: str, task: str = "0", setup: str = "") -> str:
    """Return the script that runs on each machine of a job.

    Args:
        job: the job to run.
        meeting: how its machines find each other.
        how: the command that runs the script by hand.
        task: a bash word that expands to the number of this task of an array, from 0.
        setup: lines of bash before the commands.
    """
    head = script.header(job, how=how, task=meeting.index if job.resources.nodes > 1 else task)
    several = job.resources.nodes > 1 or any(processes_of(step, job) > 1 for step in job.steps)
    lines = [
        "#!/bin/bash",
        *head,
        *([setup] if setup else []),
        *(["", _process(job.resources.nodes, meeting), "", END, "", RUN] if several else []),
        "",
        script.STEPS,
        "",
        "trap 'pass_on TERM' TERM INT USR1",
        'leave() { exit "$1"; }',
        *script.steps(job, lambda step: _words(step, job)),
        "leave 0",
    ]
    return "\n".join([*lines, ""])


def faults_of_several(job: Job, place: str) -> Iterator[Fault]:
    """Yield faults of a job for several machines that share nothing but an address."""
    nodes = job.resources.nodes
    if nodes > 1 and job.num_tasks > 1:
        problem = f"is {nodes}, but the job has {job.num_tasks} tasks, each of which is one machine of {place}."
        yield Fault("--nodes", problem, "Send one run at a time, or leave --nodes out.")
    alone = [step.command for step in job.steps if not step.together]
    if nodes > 1 and alone:
        problem = f"is done by one process, but the job has {nodes} machines, which would not wait for it."
        yield Fault(alone[0], problem, f"Submit it separately first, then what all machines of {place} do together.")


def processes_of(step: JobStep, job: Job) -> int:
    """Return the number of processes of a step on each machine; a JAX process uses all devices of its machine."""
    if not step.together:
        return 1
    return job.resources.processes or (1 if step.command == "x-exp" else job.resources.processes_of_node)


def _words(step: JobStep, job: Job) -> list[str]:
    words, count = script.words_of(job, step), processes_of(step, job)
    return words if count * job.resources.nodes == 1 or not step.together else ["run", str(count), *words]


def _process(nodes: int, meeting: Meeting) -> str:
    """Return the bash function `process`; it reads `index`, `count` and `number` from its callers."""
    return f"""\
node={meeting.index} address={meeting.address} port={meeting.port}

# process COMMAND...: one of them, with the variables of torchrun and of JAX.
process() {{
    export RANK=$((node * count + index)) WORLD_SIZE=$((count * {nodes})) GROUP_RANK=$node
    export LOCAL_RANK=$index LOCAL_WORLD_SIZE=$count MASTER_ADDR=$address MASTER_PORT=$((port + number - 1))
    export JAX_PROCESS_ID=$RANK JAX_NUM_PROCESSES=$WORLD_SIZE JAX_COORDINATOR_ADDRESS=$MASTER_ADDR:$MASTER_PORT
    exec "$@"
}}"""
