"""What a job leaves in its folder beside checkpoints and logs: what it is, and from what its weights began."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping

import jax

from xdpx.checkpoints.spmd_files import named_leaves
from xdpx.config.args_file import differences
from xdpx.config.faults import ConfigError, Fault
from xdpx.experiments.describing import class_vars_text, model_params_text
from xdpx.experiments.running.parts import Parts
from xdpx.reports.run_tables import TRAIN_LOG, VALID_LOG
from xdpx.training import environment
from xdpx.training.status import STATUS_FILE, Content, trouble_of_status
from xdpx.utils import commit, io
from xdpx.utils.aside import is_unreadable, original_name, set_aside

CHECKPOINTS, SUMMARIES, EVAL_OUT, DECODER_OUT, INFER_OUT = (
    "checkpoints", "summaries", "eval_out", "decoder_out", "infer_out",
)  # fmt: skip
PROVENANCE = "train_state_provenance.txt"
MODEL_PARAMS = "model_params.txt"
ONLY_AT_THE_START = ".init_from_checkpoint_rules"
FOLDERS = frozenset({
    CHECKPOINTS, SUMMARIES, EVAL_OUT, DECODER_OUT, INFER_OUT, "plots", "stacks", "nonfinite", "profile",
})  # fmt: skip
TEXTS = (MODEL_PARAMS, "experiment_cls_vars.txt", "input_specs.json", "run.json", PROVENANCE)
"""How the names of texts end that a job writes."""
OWN = FOLDERS | {TRAIN_LOG, VALID_LOG, "log.txt", STATUS_FILE, "run.json"}
"""What a job writes; its text files have names that begin with its mode."""


def content(folder: str) -> Content:
    """Tell what is in a folder: only "nothing" and "run" may be trained into."""
    if not io.exists(folder):
        return "nothing"
    if not io.isdir(folder):
        return "something else"
    names = {original_name(name) for name in io.listdir(folder) if not name.startswith(".") and ".tmp-" not in name}
    if not names:
        return "nothing"
    return "run" if names & OWN or any(name.endswith("model_params.txt") for name in names) else "something else"


def mend(folder: str) -> None:
    """Set aside what a job wrote beside its checkpoints and is damaged, so that the job can go on without it.

    Logs are left to whoever continues them: their whole rows stay.
    """
    for name in io.listdir(folder):
        path = io.join(folder, name)
        if name in FOLDERS:
            trouble = "" if io.isdir(path) else "is no folder"
        elif name == STATUS_FILE and io.isfile(path):
            trouble = trouble_of_status(path)
        else:
            trouble = is_unreadable(path) if name in OWN or name.endswith(TEXTS) else ""
        if trouble and name not in (CHECKPOINTS, TRAIN_LOG, VALID_LOG):
            set_aside(path, trouble, then="the job goes on without it")


def describe(parts: Parts) -> None:
    """Write what the job is, on one process; the files of modes that do not train begin with the mode."""
    prefix = "" if parts.options.trains else f"{parts.options.mode}_"
    texts = {
        f"{prefix}{MODEL_PARAMS}": model_params_text(parts.experiment),
        f"{prefix}experiment_cls_vars.txt": class_vars_text(parts.experiment),
        f"{prefix}post_init_model_params.txt": resolved_text(parts),
        f"{prefix}input_specs.json": specs_text(parts),
        f"{prefix}run.json": run_text(parts),
    }
    for name, text in texts.items():
        commit.write_text(io.join(parts.folder, name), text)


def changes(parts: Parts) -> list[str]:
    """Return a line for each value of the experiment that is another one than the folder tells of.

    Raises:
        ConfigError: one of them is read when a job begins, and this one has begun.
    """
    path = io.join(parts.folder, MODEL_PARAMS)
    if not io.isfile(path):
        return []
    with io.open(path, encoding="utf-8", errors="replace") as file:
        before = _values(file.read())
    now = _values(model_params_text(parts.experiment))
    differing = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    late = [name for name in differing if ONLY_AT_THE_START in name]
    if late:
        was, now_is = (values.get(late[0], "not there") for values in (before, now))
        problem = f"was {was}, and is {now_is} now, but is read when a job begins; this one has begun, and takes all "
        problem += "weights from its own checkpoint."
        remedy = "Put the old value back, or begin a new job in a new job_log_dir."
        raise ConfigError(type(parts.experiment).__name__, [Fault(late[0], problem, remedy)])
    return differences(before, now)


def _values(text: str) -> dict[str, str]:
    return {name: value for name, sign, value in (line.partition(" : ") for line in text.splitlines()) if sign}


def resolved_text(parts: Parts) -> str:
    """Return every field of every layer as it was built, parents' types passed on, one on a line."""
    lines = [f"{path}.{line}" for path, text in sorted(parts.layers.items()) for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def specs_text(parts: Parts) -> str:
    """Return shape and type of every array of one batch over all processes, as JSON."""
    specs = {name: {"shape": list(leaf.shape), "dtype": str(leaf.dtype)} for name, leaf in named_leaves(parts.spec)}
    return json.dumps(specs, indent=1) + "\n"


def run_text(parts: Parts) -> str:
    """Return with what the job was made, as JSON: versions, commit, devices, mesh, flags of XLA and JAX."""
    flags = {name: value for name, value in sorted(os.environ.items()) if name.startswith(("XLA_", "JAX_", "LIBTPU_"))}
    cls = type(parts.experiment)
    facts = {
        "experiment": f"{cls.__module__}.{cls.__qualname__}",
        "mode": parts.options.mode,
        "versions": environment.versions(("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")),
        "commit": environment.commit_lines(),
        "command": sys.argv,
        "processes": jax.process_count(),
        "devices": [f"{device.platform}:{device.device_kind}" for device in parts.mesh.devices.flat][:1],
        "num_devices": parts.mesh.size,
        "mesh": {name: int(size) for name, size in parts.mesh.shape.items()},
        "flags": flags,
    }
    return json.dumps(facts, indent=1) + "\n"


def provenance_text(names: Mapping[str, str]) -> str:
    """Return where each tensor of the first state came from, one on a line."""
    return "".join(f"{name}: {origin}\n" for name, origin in sorted(names.items()))
