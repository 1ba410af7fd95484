"""Parts of the shell scripts that run a job: plain bash, every word quoted, written to be read by people."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from xdpx.launch.submission import Job, JobStep
from xdpx.training.preemption import EXIT_CODE


class Variable(str):
    """A word such as `$HEAD` that bash expands; words of a user never are, whatever they look like."""

    __slots__ = ()


RUN_INDEX = Variable("$XDPX_RUN")
"""In the words of a step: the number of the run of its config, from 1. Left for the shell to expand."""

STEPS = """
child=
stopping=  # the signal that came
pass_on() {  # SIGNAL: let the step that runs save and end, and begin no other
    stopping=$1
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
    [ -z "$stopping" ] || kill "-$stopping" "$child" 2>/dev/null  # it came while the step had no number yet
    wait "$child"; code=$?
    while kill -0 "$child" 2>/dev/null; do wait "$child"; code=$?; done  # a signal ends a wait, not the child
    child=
    # 143, 138: it was just starting, and had nothing to save; -1: bash 5.2 has lost the code, as it ended at a signal.
    case $stopping$code in TERM143|USR1138|TERM-1|USR1-1) code=INTERRUPTED ;; esac
    if [ "$code" = 0 ]; then mkdir -p "$folder/done" && : > "$mark"; fi
    return "$code"
}
""".strip("\n").replace("INTERRUPTED", str(EXIT_CODE))
"""A bash function that runs a step in the background, so that the script can handle signals meanwhile."""


def header(job: Job, *, how: str, task: str = "0") -> list[str]:
    """Return the lines after `#!`: the working directory, and the environment variables.

    Args:
        job: the job that the script runs.
        how: the command that runs the script by hand.
        task: a bash word that expands to the number of this task, from 0.
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
    """Return the lines that export the number of this task; [] if there is one only."""
    found = [f"export XDPX_TASK_INDEX=$task XDPX_NUM_TASKS={job.num_tasks}"] if job.num_tasks > 1 else []
    return [*found, *(["export XDPX_RUN=$((task + 1))"] if job.runs > 1 else [])]


def exports(environment: Mapping[str, str]) -> list[str]:
    """Return an export line for each variable; it replaces an earlier value."""
    return [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]


def steps(job: Job, launch: Callable[[JobStep], list[str]]) -> list[str]:
    """Return a line for each step, which exits the script if the step fails.

    Args:
        job: the job that the script runs.
        launch: returns the command line that starts a step.
    """
    return [f"step {number} {line(launch(each))} || leave $?" for number, each in enumerate(job.steps, start=1)]


def on_one_machine(job: Job) -> list[str]:
    """Return the lines that run all steps on one machine; several runs or tasks are run one after another.

    x-train starts its processes itself (nproc), as this keeps exit code 85, which torchrun does not.
    """
    count = job.resources.processes_of_node

    def launch(step: JobStep) -> list[str]:
        words = words_of(job, step)
        if step.command == "x-train" and count > 1 and f"nproc={count}" not in words:
            words.insert(len(step.argv(job.python)), f"nproc={count}")
        return words

    return in_order(job, steps(job, launch))


def in_order(job: Job, body: list[str]) -> list[str]:
    """Return lines that run a body once for each task of a job, one after another."""
    if job.num_tasks == 1:
        return body
    inner = [f"    {each}" for each in (*_of_task(job), *body)]
    return [f"for task in $(seq 0 {job.num_tasks - 1}); do", *inner, "done"]


def words_of(job: Job, step: JobStep) -> list[str]:
    """Return the command line of a step in one process; if the job has several runs, for the run of this task only."""
    words = [*step.argv(job.python), *(["--resumable"] if step.command == "x-train" else [])]
    return [*words, "--only", RUN_INDEX] if job.runs > 1 else words


def line(words: list[str]) -> str:
    """Join words for bash, each quoted so that only those of class `Variable` are expanded."""
    return " ".join(f'"{word}"' if isinstance(word, Variable) else shlex.quote(word) for word in words)


def one_line(text: str) -> str:
    """Return a text on one line, as for a comment."""
    return " ".join(text.split())
