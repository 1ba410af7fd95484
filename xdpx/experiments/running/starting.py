"""The initial state of a run: its newest checkpoint, else weights of other jobs by rules, else random weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax

from xdpx.checkpoints import folders, spmd_files, spmd_folders, spmd_shares
from xdpx.checkpoints.checkpointer import NoCheckpoint
from xdpx.checkpoints.memory_shares import MemoryShares
from xdpx.config.faults import ConfigError, Fault
from xdpx.engines.spmd.engine import SpmdEngine
from xdpx.experiments.running.parts import Parts
from xdpx.logger import log
from xdpx.tasks.spmd.train_fields import CheckpointLoadingRules
from xdpx.utils import io

TRAINED_BY = "trained_by"
"""Key of the facts of a checkpoint: id of the training, from one start to its end, that took its last update."""
AVERAGE = "opt_state/ema/average"
RANDOM = "random initialisation"
SOURCE = "train.init_from_checkpoint_rules"
PARAMS, OPTIMIZER, NON_TRAINABLE = "params", "opt_state", "non_trainable"


@dataclass
class Start:
    """The initial state of a run.

    Attributes:
        checkpoint: where it was restored from; None for a new run.
        facts: what that checkpoint records about the run.
        provenance: tensor name -> origin.
        inputs: positions of this process in its inputs, if restored from memory; None to read them from the checkpoint.
    """

    state: Any
    checkpoint: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)
    inputs: Mapping[str, Any] | None = None


def begin(parts: Parts, until: int, copies: MemoryShares | None = None) -> Start:
    """Return the initial state. Called on all processes.

    Args:
        parts: of the run.
        until: the last update to train now. In-memory copies of it are not used, so that it is taken again and saved.
        copies: in-memory copies of the run's state; None for no copies.

    Raises:
        ConfigError: the checkpoint is of another model, or a loading rule matches nothing.
        NoCheckpoint: there are checkpoints, but all are damaged.
    """
    parent = io.join(parts.folder, spmd_folders.PARENT)
    copied = 0 if copies is None else copies.newest(spmd_shares.parts_of(parts.engine.target), before=until)
    # Checkpoints older than the copy need not be examined.
    is_newest = parts.ranks.broadcast(parts.is_first and copied > max(spmd_folders.steps(parent), default=0))
    found = None if is_newest else spmd_folders.newest(parent, ranks=parts.ranks)
    if copies is not None and copied and (found is None or copied > _step_of(found)):
        return _from_memory(parts, copies, copied)
    if found is not None:
        state = spmd_files.restore(found, parts.engine.target, ranks=parts.ranks)
        names = dict.fromkeys(dict(spmd_files.named_leaves(state)), found)
        return Start(state, found, spmd_folders.read_metadata(found)["facts"], names)
    _refuse_to_start_over(parts, parent)
    state = parts.engine.start(parts.train.random_seed)
    start = Start(state, provenance=dict.fromkeys(dict(spmd_files.named_leaves(state)), RANDOM))
    for folder, given in (parts.train.init_from_checkpoint_rules or {}).items():
        _apply(parts, start, str(folder), _rules(folder, given))
    return start


def _refuse_to_start_over(parts: Parts, parent: str) -> None:
    """Raise NoCheckpoint if a job has checkpoints, none of which can be used: it would begin anew in their place."""
    damaged = parts.ranks.broadcast(spmd_folders.written(parent) if parts.is_first else None)
    if damaged:
        raise NoCheckpoint(
            f"{parent}: none of the checkpoints of steps {damaged} is intact, so there is nothing to resume from. Move "
            "them away to begin anew in this folder, or start a new job in a new job_log_dir."
        )


def _rules(folder: str, given: object) -> CheckpointLoadingRules:
    """Return the rules for one job. Raises ConfigError if they are something else."""
    try:
        rules = CheckpointLoadingRules(**given) if isinstance(given, Mapping) else given
    except (TypeError, AttributeError) as error:  # of templates, which say what is wrong
        raise ConfigError(SOURCE, [Fault(folder, str(error))]) from error
    if not isinstance(rules, CheckpointLoadingRules):
        remedy = "Give CheckpointLoadingRules(...), or a dict of its fields; {} loads every weight of the same name."
        raise ConfigError(SOURCE, [Fault(folder, f"is {given!r:.60}.", remedy)])
    return rules


def _step_of(checkpoint: str) -> int:
    return spmd_folders.step_of(io.name(checkpoint)) or 0


def _from_memory(parts: Parts, copies: MemoryShares, step: int) -> Start:
    share, facts = copies.load(step)
    state = spmd_shares.joined(share, parts.engine.target)
    place = f"the copy of step {step} in memory"
    names = dict.fromkeys(dict(spmd_files.named_leaves(state)), place)
    return Start(state, place, facts["facts"], names, inputs=facts["inputs"])


def checkpoint_in(folder: str, step: int | None, *, parts: Parts) -> str:
    """Return a checkpoint of another job; `folder` is the job's, its checkpoint folder, or a checkpoint itself.

    Raises:
        ConfigError: there is none.
    """
    if spmd_folders.step_of(io.name(folder.rstrip("/"))) is not None:
        return folder.rstrip("/")
    inner = io.join(folder, spmd_folders.PARENT)
    parent = inner if io.isdir(inner) else folder
    if step is not None:
        path = io.join(parent, spmd_folders.folder_name(step))
        if io.isdir(path):
            return path
        listed = ", ".join(map(str, spmd_folders.steps(parent))) or "none"
        raise ConfigError(folder, [Fault("step", f"has no checkpoint of step {step}.", f"There are: {listed}.")])
    found = spmd_folders.newest(parent, ranks=parts.ranks)
    if found is None:
        raise ConfigError(
            folder, [Fault("checkpoints", "there is no checkpoint to start from.", "Give the folder of a job.")]
        )
    return found


def weights_in(checkpoint: str) -> str:
    """Return the id of the weights in a checkpoint: of the training that saved them, else of their files."""
    facts = spmd_folders.read_metadata(checkpoint)["facts"]
    manifest = folders.manifest_of(checkpoint)
    return str(facts.get(TRAINED_BY) or ("" if manifest is None else manifest.id))


def load_weights(parts: Parts, engine: SpmdEngine, checkpoint: str) -> Any:
    """Return a state for scoring only, with averaged weights if the engine wants them and the checkpoint has them."""
    spmd_folders.verify(checkpoint, ranks=parts.ranks)
    target = engine.plan.for_scoring()
    saved = spmd_folders.read_shapes(checkpoint)
    averaged = engine.options.score_averaged and any(name.startswith(f"{AVERAGE}/") for name in saved)
    if engine.options.score_averaged and not averaged:
        log.warning(f"{checkpoint} has no averaged weights: its last ones are used.")
    leaves = dict(spmd_files.named_leaves(target))
    sources = {name: _averaged_name(name) if averaged else name for name in leaves}
    wanted = {sources[name]: leaf for name, leaf in leaves.items()}
    spmd_files.check_shapes(checkpoint, wanted)
    found = spmd_files.read(checkpoint, wanted)
    values = [found[sources[name]] for name in leaves]
    return jax.tree.unflatten(jax.tree.structure(target), values)


def _averaged_name(name: str) -> str:
    return f"{AVERAGE}{name.removeprefix(PARAMS)}" if name.startswith(f"{PARAMS}/") else name


# ---- weights from other jobs


def _apply(parts: Parts, start: Start, folder: str, rules: CheckpointLoadingRules) -> None:
    """Load from one job what its rules select and earlier jobs have not provided."""
    checkpoint = checkpoint_in(folder, rules.step, parts=parts)
    spmd_folders.verify(checkpoint, ranks=parts.ranks)
    saved = spmd_folders.read_shapes(checkpoint)
    leaves = dict(spmd_files.named_leaves(parts.engine.target))
    free = [name for name in leaves if start.provenance[name] == RANDOM and name.startswith((PARAMS, NON_TRAINABLE))]
    sources = _sources(rules, free, saved, checkpoint)
    of_optimizer = [name for name in leaves if name.startswith(f"{OPTIMIZER}/")]
    # Weights that come after the optimizer state of another job leave it as it is.
    fresh = not rules.load_opt_states and all(start.provenance[name] == RANDOM for name in of_optimizer)
    wanted_whole = [*(of_optimizer if rules.load_opt_states else []), *(["step"] if rules.load_step else [])]
    sources |= {name: name for name in wanted_whole if start.provenance[name] == RANDOM}
    found: dict[str, Any] = {}
    while left := {name: source for name, source in sources.items() if name not in found}:
        # An update donates each array: two variables that begin as the same tensor need one each.
        readers = {source: name for name, source in left.items()}
        wanted = {source: leaves[name] for source, name in readers.items()}
        spmd_files.check_shapes(checkpoint, wanted)
        found |= {readers[source]: values for source, values in spmd_files.read(checkpoint, wanted).items()}
    _put(parts, start, found, fresh=fresh)
    start.provenance |= {name: f"{checkpoint}: {source}" for name, source in sources.items()}
    log.info(f"{len(sources)} of {len(leaves)} tensors are initialised from {checkpoint}")


def _sources(
    rules: CheckpointLoadingRules, names: list[str], saved: Mapping[str, Any], checkpoint: str
) -> dict[str, str]:
    """Return variable name -> name of the tensor in a checkpoint from which it is initialised."""
    where = f"{SOURCE}[{checkpoint}]"
    malformed = list(_malformed(rules))
    if malformed:
        raise ConfigError(where, malformed)
    kept = [name for name in names if not any(re.fullmatch(pattern, name) for pattern in rules.ignore_rules)]
    sources: dict[str, str] = {}
    used = set()
    for name in kept:
        for pattern, template in rules.load_rules:
            match = re.fullmatch(pattern, name)
            if match is not None:
                plain = template.format(*match.groups())
                averaged = _averaged_name(plain)
                sources[name] = averaged if rules.load_ema_states and averaged in saved else plain
                used.add(pattern)
                break
    remedy = f"Write an expression for whole names; variables are named like: {', '.join(names[:3])}."
    unused = [("load_rules", pattern) for pattern, _ in rules.load_rules if pattern not in used]
    idle = [pattern for pattern in rules.ignore_rules if not any(re.fullmatch(pattern, name) for name in names)]
    faults = [
        Fault(key, f"'{pattern}' matches no variable.", remedy)
        for key, pattern in (*unused, *(("ignore_rules", pattern) for pattern in idle))
    ]
    if (unused and not used) or (faults and rules.safe_load):
        raise ConfigError(where, faults)
    for fault in faults:
        log.warning(f"{where}.{fault.key}: {fault.problem} {fault.remedy}")
    return sources


def _malformed(rules: CheckpointLoadingRules) -> Iterator[Fault]:
    """Return the expressions that are invalid, and the templates that ask for groups which their expression lacks."""
    patterns = [("load_rules", *rule) for rule in rules.load_rules]
    for key, pattern, template in [*patterns, *(("ignore_rules", pattern, "") for pattern in rules.ignore_rules)]:
        try:
            template.format(*[""] * re.compile(pattern).groups)
        except re.error as error:
            yield Fault(key, f"'{pattern}' is not a regular expression: {error}.", "Escape literal characters.")
        except (IndexError, KeyError, ValueError) as error:
            problem = f"'{template}' does not fit '{pattern}': {error}."
            yield Fault(key, problem, "Write one {} for each group in parentheses, or fewer.")


def _put(parts: Parts, start: Start, found: Mapping[str, Any], *, fresh: bool) -> None:
    """Replace tensors of a state; with `fresh`, the optimizer state is initialised from the new weights."""
    names = dict(spmd_files.named_leaves(start.state))
    values = [found.get(name, leaf) for name, leaf in names.items()]
    state: dict[str, Any] = jax.tree.unflatten(jax.tree.structure(start.state), values)
    if fresh:
        build = jax.jit(parts.task.learner.init, out_shardings=parts.engine.plan.placed["opt_state"])
        state = {**state, OPTIMIZER: build(state[PARAMS])}
    start.state = state
