"""What a job writes into its folder besides checkpoints and logs: its description, and the origin of its weights."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import get_args

import jax

from xdpx.checkpoints.spmd_files import named_leaves
from xdpx.config.args_file import differences
from xdpx.config.faults import ConfigError, Fault, first_few
from xdpx.datasets.inputs.base_input import BaseInput
from xdpx.experiments.describing import class_vars_text, model_params_text
from xdpx.experiments.running.options import Mode
from xdpx.experiments.running.parts import Parts
from xdpx.reports.run_tables import TRAIN_LOG, VALID_LOG
from xdpx.training import environment
from xdpx.training.status import STATUS_FILE, Content, trouble_of_status
from xdpx.utils import commit, io
from xdpx.utils.aside import is_unreadable, original_name, set_aside
from xdpx.utils.owners import is_lasting

CHECKPOINTS, SUMMARIES, EVAL_OUT, DECODER_OUT, INFER_OUT = (
    "checkpoints", "summaries", "eval_out", "decoder_out", "infer_out",
)  # fmt: skip
PROVENANCE = "train_state_provenance.txt"
MODEL_PARAMS = "model_params.txt"
CLASS_VARS = "experiment_cls_vars.txt"
ONLY_AT_THE_START = ".init_from_checkpoint_rules"
OF_DECODING = "task.model.decoder_tpl"
_SAME_NUMBERS = (
    "dropout_prob", "label_smoothing_prob", ".params_init",  # only in training
    ".checkpoint_policy", ".flash", ".logits_chunk_tokens", ".lookup_style", ".microbatch_size", ".num_microbatches",
    ".return_logits", ".unroll", ".weight_split_dims_mapping",
)  # fmt: skip
"""Endings of the fields of a model on which the results of its evaluation do not depend, except for rounding."""
_FOLDER_OF_FILE = re.compile(r"(?<=xdpx_experiment_files\.)(.*?)_[0-9a-f]{8}(?=\.)")
_OF_PROCESS = re.compile(r"\b(num_infeed_hosts|infeed_host_index|prefetch) : ")
_MOST_TOLD = 6
FOLDERS = frozenset({
    CHECKPOINTS, SUMMARIES, EVAL_OUT, DECODER_OUT, INFER_OUT, "plots", "stacks", "nonfinite", "profile",
})  # fmt: skip
TEXTS = (MODEL_PARAMS, CLASS_VARS, "input_specs.json", "run.json", PROVENANCE)
"""Suffixes of the names of text files that a job writes."""
_OF_OTHER_MODES = frozenset(
    f"{mode}_{prefix}{name}"
    for mode in get_args(Mode)
    for prefix, name in (*(("", text) for text in TEXTS), ("post_init_", MODEL_PARAMS))
)
"""Names of the texts that describe a job in modes that do not train."""
OWN = FOLDERS | {TRAIN_LOG, VALID_LOG, "log.txt", STATUS_FILE, "run.json"}
"""What a job writes; names of text files may be prefixed with the mode."""


def content(folder: str) -> Content:
    """Return what a folder contains; only "nothing" and "run" can be trained into."""
    if not io.exists(folder):
        return "nothing"
    if not io.isdir(folder):
        return "something else"
    names = {original_name(name) for name in io.listdir(folder) if is_lasting(name)}
    if not names:
        return "nothing"
    # These alone are those of an evaluation before the job; beside other files, they do not make a folder a job's.
    return "run" if names & (OWN | {MODEL_PARAMS}) or names <= _OF_OTHER_MODES else "something else"


def refuse_another(parts: Parts, folder: str, key: str = "job_log_dir") -> None:
    """Raise ConfigError if a folder contains files, but no job.

    Args:
        parts: of the run.
        folder: any path.
        key: name of the option that gives it.
    """
    if content(folder) == "something else":
        remedy = "Choose a folder that does not exist, is empty, or contains this job."
        fault = Fault(key, f"'{folder}' contains files that do not belong to a job.", remedy)
        raise ConfigError(type(parts.experiment).__name__, [fault])


def mend(folder: str) -> None:
    """Set aside damaged files that a job wrote besides its checkpoints, so that it can continue without them.

    Logs are left to the code that continues them, which keeps their complete rows.
    """
    for name in io.listdir(folder):
        path = io.join(folder, name)
        if name in FOLDERS:
            trouble = "" if io.isdir(path) else "is not a folder"
        elif name == STATUS_FILE and io.isfile(path):
            trouble = trouble_of_status(path)
        else:
            trouble = is_unreadable(path) if name in OWN or name.endswith(TEXTS) else ""
        if trouble and name not in (CHECKPOINTS, TRAIN_LOG, VALID_LOG):
            set_aside(path, trouble, then="the job continues without it")


def describe(parts: Parts) -> None:
    """Write the description of the job. In modes that do not train, the file names are prefixed with the mode."""
    prefix = "" if parts.options.trains else f"{parts.options.mode}_"
    texts = {
        f"{prefix}{MODEL_PARAMS}": model_params_text(parts.experiment),
        f"{prefix}{CLASS_VARS}": class_vars_text(parts.experiment),
        f"{prefix}post_init_model_params.txt": resolved_text(parts),
        f"{prefix}input_specs.json": specs_text(parts),
        f"{prefix}run.json": run_text(parts),
    }
    for name, text in texts.items():
        commit.write_text(io.join(parts.folder, name), text)


def changes(parts: Parts) -> list[str]:
    """Return one line for each value of the experiment that differs from the one recorded in the folder.

    Raises:
        ConfigError: one of them only has an effect when a job begins, and this job has begun.
    """
    before, now = _recorded(io.join(parts.folder, MODEL_PARAMS)), _values(model_params_text(parts.experiment))
    if not before:
        return []
    differing = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    late = [name for name in differing if ONLY_AT_THE_START in name]
    if late:
        was, now_is = (values.get(late[0], "not there") for values in (before, now))
        problem = (
            f"was {was}, and is {now_is} now, but is only read when a job starts; this one has started, and takes all "
        )
        problem += "weights from its own checkpoint."
        remedy = "Put the old value back, or start a new job in a new job_log_dir."
        raise ConfigError(type(parts.experiment).__name__, [Fault(late[0], problem, remedy)])
    return differences(before, now)


def other_model(parts: Parts, job: str) -> str:
    """Return how the model to evaluate differs from the one that is recorded in a job; '' if it does not.

    How to decode, what to measure, the inputs and the mesh are for the evaluation to choose.
    """
    now = _as_trained(_values(model_params_text(parts.experiment)))
    before = _as_trained(_recorded(io.join(job, MODEL_PARAMS)))
    whose = "eval" if parts.options.mode == "eval" else "decode"
    averaged = f"task.train.{whose}_use_ema_states"
    differing = _differing(before, now, wanted=lambda name: name == averaged or _is_of_model(name))
    if not differing:
        return ""
    fields_now, fields_before = (
        _values(class_vars_text(parts.experiment), ": "),
        _recorded(io.join(job, CLASS_VARS), ": "),
    )
    fields = _differing(fields_before, fields_now, wanted=str.isidentifier)
    told = f" Fields of the experiment that differ: {first_few(fields, _MOST_TOLD)}." if fields else ""
    return f"{first_few(differing, _MOST_TOLD)}.{told}"


def settings_digest(parts: Parts, data: BaseInput, *, decodes: bool) -> str:
    """Return a digest of what decides the outputs for an input with given weights: the model, metrics and the input."""
    task = _as_trained(_values(parts.task.hparams.to_text()))
    of_task = {f"task.{name}": value for name, value in task.items()}
    wanted = ("task.metrics", *([OF_DECODING] if decodes else []))
    kept = [f"{name}={value}" for name, value in of_task.items() if _is_of_model(name) or name.startswith(wanted)]
    averaged = parts.train.decode_use_ema_states if decodes else parts.train.eval_use_ema_states
    of_input = [line for line in data.hparams.to_text().splitlines() if not _OF_PROCESS.search(line)]
    text = "\n".join([*kept, f"averaged={averaged}", *of_input])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _is_of_model(name: str) -> bool:
    """Return whether a value decides what a trained model computes."""
    whole = name == "task.model" or name.startswith(("task.model.", "task.loss_aggregator"))
    return whole and not name.startswith(OF_DECODING) and not name.endswith(_SAME_NUMBERS)


def _as_trained(values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a description by names that two versions of it share.

    A template goes by its own name and prints as its class; that of a file does not tell the file's folder.
    """
    return {name.removesuffix(".cls"): _FOLDER_OF_FILE.sub(r"\1", value) for name, value in values.items()}


def _differing(before: Mapping[str, str], now: Mapping[str, str], *, wanted: Callable[[str], bool]) -> list[str]:
    """Return one text for each wanted value that differs. What only one of two versions of the code has is left out."""
    names = sorted(name for name in before.keys() & now.keys() if wanted(name) and before[name] != now[name])
    return [f"{name} (was {before[name]}, is {now[name]})" for name in names]


def _recorded(path: str, sign: str = " : ") -> dict[str, str]:
    """Return name -> printed value, as recorded in a file of a job; {} if it is not there."""
    if not io.isfile(path):
        return {}
    with io.open(path, encoding="utf-8", errors="replace") as file:
        return _values(file.read(), sign)


def _values(text: str, sign: str = " : ") -> dict[str, str]:
    lines = (line.strip().partition(sign) for line in text.splitlines())
    return {name: value for name, found, value in lines if found}


def resolved_text(parts: Parts) -> str:
    """Return every field of every layer as built, including dtypes inherited from parents, one per line."""
    lines = [f"{path}.{line}" for path, text in sorted(parts.layers.items()) for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def specs_text(parts: Parts) -> str:
    """Return shape and dtype of each array of a global batch, as JSON."""
    specs = {name: {"shape": list(leaf.shape), "dtype": str(leaf.dtype)} for name, leaf in named_leaves(parts.spec)}
    return json.dumps(specs, indent=1) + "\n"


def run_text(parts: Parts) -> str:
    """Return the environment of the job as JSON: versions, commit, devices, mesh, flags of XLA and JAX."""
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
    """Return the origin of each tensor of the initial state, one per line."""
    return "".join(f"{name}: {origin}\n" for name, origin in sorted(names.items()))
