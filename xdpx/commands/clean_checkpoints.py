"""Delete checkpoints that are no longer needed: all but the best, the last, and those that a resume may need.

Usage: x-script clean_checkpoints ROOT... [-WORD...] [--dry]

  ROOT     a run, or a folder with runs in it at any depth
  -WORD    only runs whose path contains WORD
  --dry    print what would be deleted, and delete nothing

Only files called checkpoint-<step>.pt and checkpoint-<step>.pts are ever deleted (with their manifests). The best one
is found from the evaluation log and `ascending_metric` in args.py. A run in training is skipped, and so is one whose
best checkpoint is unknown or damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from xdpx.checkpoints import layout
from xdpx.commands.script_arguments import need_paths, read_arguments
from xdpx.utils import io
from xdpx.utils.progress import format_bytes

NAME = "clean_checkpoints"
USAGE = "x-script clean_checkpoints ROOT... [-WORD...] [--dry]"


class Surplus(NamedTuple):
    """The files that can be deleted from one run, by names of commits and of files, and the files that are kept."""

    names: list[str]
    files: list[str]
    kept: list[str]


class LeftAlone(Exception):
    """Raised with the reason why nothing is deleted from a run."""


def main(argv: Sequence[str]) -> int:
    """Clean every run found, and print the bytes freed. Exit code 1 if there is no run."""
    arguments = read_arguments(NAME, argv, flags=["--dry"], keywords=True)
    need_paths(NAME, arguments, USAGE)
    runs = [run for run in find_runs(arguments.paths) if all(word in run for word in arguments.keywords)]
    if not runs:
        print(f"no checkpoints below {', '.join(arguments.paths)}")
        return 1
    dry = "--dry" in arguments.flags
    freed = sum(_clean(run, dry=dry) for run in runs)
    print(f"{'would free' if dry else 'freed'} {format_bytes(freed)} in {len(runs)} run{'s' if len(runs) > 1 else ''}")
    return 0


def find_runs(roots: Sequence[str]) -> list[str]:
    """Return the folders below `roots` that hold checkpoints, sorted. Raises FileNotFoundError for a missing root."""
    found = set()
    for root in roots:
        if not io.isdir(root):
            raise FileNotFoundError(f"{root}: no such folder.")
        for path in io.listdir(root, recursive=True, full_path=True):
            if any(layout.step_of(io.name(path), kind) is not None for kind in (layout.WEIGHTS, layout.STATE)):
                found.add(io.parent(path))
    return sorted(found)


def _clean(run: str, *, dry: bool) -> int:
    """Delete one run's surplus and return the number of bytes freed."""
    from xdpx.utils.commit import Lease, LeaseHeld

    try:
        if dry:
            return _report(run, find_surplus(run), dry=True)
        with Lease(run):
            surplus = find_surplus(run)
            size = _report(run, surplus, dry=False)
            _delete(run, surplus)
            return size
    except LeaseHeld as held:
        print(f"{run}: left alone, it is in use ({held})")
    except LeftAlone as reason:
        print(f"{run}: left alone, {reason}")
    return 0


def find_surplus(run: str) -> Surplus:
    """Return the files of a run that can be deleted. Raises LeftAlone if that is not certain."""
    from xdpx.checkpoints.checkpointer import KEPT_STATES, Checkpointer

    checkpointer = Checkpointer(run)
    weights, states = checkpointer.weight_steps(), checkpointer.state_steps()
    sound = [step for step in states if not checkpointer.state_problems(step, hashes=False)]
    keep_states = {*sound[-KEPT_STATES:], *states[-KEPT_STATES:]}
    keep_weights = {*_best_steps(run, weights), *weights[-1:], *(keep_states & set(weights))}
    damaged = [text for step in keep_weights for text in checkpointer.weights_problems(step)]
    damaged += [text for step in keep_states for text in checkpointer.state_problems(step)]
    if damaged:
        raise LeftAlone(f"what would be kept is incomplete or damaged: {'; '.join(damaged)}")
    surplus_weights = [step for step in weights if step not in keep_weights]
    surplus_states = [step for step in states if step not in keep_states]
    return Surplus(
        [*map(layout.weights_name, surplus_weights), *map(layout.state_name, surplus_states)],
        [*map(layout.weights_file, surplus_weights), *map(layout.state_file, surplus_states)],
        [*map(layout.weights_file, sorted(keep_weights)), *map(layout.state_file, sorted(keep_states))],
    )


def _best_steps(run: str, saved: Sequence[int]) -> set[int]:
    """Return the saved steps that may be the best: the one marked `<best>`, and the one with the best logged score."""
    from xdpx.checkpoints.aliases import best_step
    from xdpx.reports.run_logs import read_run

    if not saved:
        return set()
    logs = read_run(run, train=False)
    scores = dict(zip(logs.valid["step"].astype(int).tolist(), logs.major_scores.tolist(), strict=True))
    scored = {step: scores[step] for step in saved if scores.get(step) == scores.get(step, float("nan"))}
    if not scored:
        raise LeftAlone("none of its checkpoints has a score in valid.log.tsv, so the best one is not known")
    best = (max if logs.ascending else min)(scored, key=lambda step: scored[step])
    try:
        return {best, best_step(run)}
    except FileNotFoundError:
        return {best}


def _report(run: str, surplus: Surplus, *, dry: bool) -> int:
    sizes = {name: io.size(io.join(run, name)) for name in surplus.files}
    print(f"{run}: keep {', '.join(surplus.kept)}")
    for name, size in sizes.items():
        print(f"{run}: {'would delete' if dry else 'delete'} {name} ({format_bytes(size)})")
    return sum(sizes.values())


def _delete(run: str, surplus: Surplus) -> None:
    from xdpx.utils.commit import discard

    for name, file_name in zip(surplus.names, surplus.files, strict=True):
        discard(run, name)
        if io.exists(io.join(run, file_name)):  # without a manifest: written by hand, or by an older version
            io.remove(io.join(run, file_name))
