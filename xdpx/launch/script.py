"""Pieces of the shell scripts that do a job: plain bash, each word quoted, readable by whoever inherits them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

from xdpx.launch.submission import Job, Step
from xdpx.training.preemption import EXIT_CODE

RUN_INDEX = "$XDPX_RUN"
"""In the words of a step: which run of its config it is to do, from 1. Not quoted, so that the shell fills it in."""

STEPS = """
child=
stopping=
pass_on() {  # SIGNAL: let the step that runs save and end, and begin no other
    stopping=1
    [ -z "$child" ] || kill "-$1" "$child" 2>/dev/null
}

# step NUMBER COMMAND...: what has finished before is not done again when the job is started again.
step() {
    local number=$1 mark="$folder/done/$task.$1" code
    shift
    if [ -e "$mark" ]; then echo "step $number was finished before ($mark)"; return 0; fi
    [ -z "$stopping" ] || return INTERRUPTED
    "$@" &
    child=$!
    wait "$child"; code=$?
    while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done  # a signal ends a wait, not the child
    child=
    if [ "$code" = 0 ]; then mkdir -p "$folder/done" && : > "$mark"; fi
    return "$code"
}
""".strip("\n").replace("INTERRUPTED", str(EXIT_CODE))
"""A function of bash that does a step in the background, so that the script hears signals meanwhile."""


def header(job: Job, *, how: str, task: str = "0") -> list[str]:
    """Return the first lines after `#!`: where to go, and which variables hold.

    Args:
        job: what the script does.
        how: the line that runs the script by hand.
        task: a word for bash that is the number of this task, from 0.
    """
    return [
        f"# {one_line(job.name)}: written by x-submit; runs without it: {one_line(how)}",
        f"# Exit code {EXIT_CODE} means: interrupted after saving; the same script continues.",
        f"cd {shlex.quote(job.workdir)} || exit 1",
        f"folder={shlex.quote(job.folder)}",
        f"task={task}",
        *exports(job.environment),
        *_of_task(job),
    ]


def _of_task(job: Job) -> list[str]:
    """Return the lines that say which task this is; none where there is one."""
    found = [f"export XDPX_TASK_INDEX=$task XDPX_NUM_TASKS={job.num_tasks}"] if job.num_tasks > 1 else []
    return [*found, *(["export XDPX_RUN=$((task + 1))"] if job.runs > 1 else [])]


def exports(environment: Mapping[str, str]) -> list[str]:
    """Return a line for each variable; what is there already stays behind a path that is put in front."""
    return [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]


def steps(job: Job, launch: Callable[[Step], list[str]]) -> list[str]:
    """Return a line for each step, which leaves the script when the step fails.

    Args:
        job: what the script does.
        launch: returns the words that start a step.
    """
    return [f"step {number} {line(launch(each))} || leave $?" for number, each in enumerate(job.steps, start=1)]


def on_one_machine(job: Job) -> list[str]:
    """Return the lines of all steps where there is one machine: several runs or tasks go one after another.

    x-train starts as many processes as were asked for by itself; it keeps exit code 85, which torchrun does not.
    """
    count = job.resources.processes_of_node

    def launch(step: Step) -> list[str]:
        words = words_of(job, step)
        if step.command == "x-train" and count > 1:
            words.insert(len(step.argv(job.python)), f"nproc={count}")
        return words

    return in_order(job, steps(job, launch))


def in_order(job: Job, body: list[str]) -> list[str]:
    """Return lines that do a body once for each task of a job, one after another."""
    if job.num_tasks == 1:
        return body
    inner = [f"    {each}" for each in (*_of_task(job), *body)]
    return [f"for task in $(seq 0 {job.num_tasks - 1}); do", *inner, "done"]


def words_of(job: Job, step: Step) -> list[str]:
    """Return the words that run a step in one process; of the one run that this task does, where there are several."""
    words = [*step.argv(job.python), *(["--resumable"] if step.command == "x-train" else [])]
    return [*words, "--only", RUN_INDEX] if job.runs > 1 else words


def line(words: list[str]) -> str:
    """Join words for bash, each quoted but those that bash has to fill in."""
    return " ".join(f'"{word}"' if re.fullmatch(r"\$\w+", word) else shlex.quote(word) for word in words)


def one_line(text: str) -> str:
    """Return a text that can stand in a comment."""
    return " ".join(text.split())
