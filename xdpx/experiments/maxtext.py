"""MaxText's names <-> ours: a flat table of its settings becomes the fields of an experiment, and back.

| MaxText                | fields                                                         |
|------------------------|----------------------------------------------------------------|
| base_num_decoder_layers, base_emb_dim, base_mlp_dim, base_num_heads (each times `scale`) | NUM_LAYERS, MODEL_DIMS, HIDDEN_DIMS, NUM_HEADS |
| head_dim, per_device_batch_size, max_target_length, vocab_size | DIMS_PER_HEAD, PERCORE_BATCH_SIZE, MAX_SEQ_LEN, VOCAB_SIZE |
| dtype, scan_layers, log_period, steps, learning_rate | FPROP_DTYPE, USE_REPEATED_LAYER, SUMMARY_INTERVAL_STEPS, MAX_STEPS, LEARNING_RATE |
| ici_{data,fsdp,tensor}_parallelism | ICI_MESH_SHAPE, with `stage` in front when there is a pipeline |
| dcn_{data,fsdp,tensor}_parallelism | DCN_MESH_SHAPE |
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xdpx.config.faults import ConfigError, Fault, nearest

SCALED = {"base_num_decoder_layers": "NUM_LAYERS", "base_emb_dim": "MODEL_DIMS", "base_mlp_dim": "HIDDEN_DIMS",
          "base_num_heads": "NUM_HEADS"}  # fmt: skip
OLD_SCALED = {"base_num_query_heads": "base_num_heads"}
"""What MaxText calls them today."""

PLAIN = {"head_dim": "DIMS_PER_HEAD", "per_device_batch_size": "PERCORE_BATCH_SIZE", "max_target_length": "MAX_SEQ_LEN",
         "vocab_size": "VOCAB_SIZE", "dtype": "FPROP_DTYPE", "scan_layers": "USE_REPEATED_LAYER",
         "log_period": "SUMMARY_INTERVAL_STEPS", "steps": "MAX_STEPS", "learning_rate": "LEARNING_RATE"}  # fmt: skip
AXES = ("data", "fsdp", "tensor")
NEUTRAL_AXES = ("diloco", "fsdp_transpose", "context", "context_usp_ulysses", "context_autoregressive", "sequence",
                "tensor_sequence", "tensor_transpose", "expert", "autoregressive")  # fmt: skip
"""Axes of MaxText that our meshes do not have: only 1 can be taken over."""

STAGE = "pipeline"
DEFAULT_FILL = {"ici": "fsdp", "dcn": "data"}
"""The axes that MaxText fills up (-1) when nothing is said."""


def to_fields(
    settings: Mapping[str, Any], *, num_slices: int = 1, devices_per_slice: int | None = None
) -> dict[str, Any]:
    """Give the fields of an experiment for settings of MaxText.

    Args:
        settings: MaxText's names and values; what is no size, mesh or step setting is refused by name.
        num_slices: fills a -1 of dcn_*.
        devices_per_slice: fills a -1 of ici_*; None leaves the -1, which fills up when devices are there.

    Raises:
        ConfigError: with every setting that cannot be taken over.
    """
    given = {OLD_SCALED.get(name, name): value for name, value in settings.items()}
    faults = [*_unknown(given), *_too_many_fills(given)]
    if faults:
        raise ConfigError("MaxText settings", faults)
    scale = given.get("scale", given.get("global_parameter_scale", 1))
    fields = {ours: given[name] * scale for name, ours in SCALED.items() if name in given}
    fields |= {ours: given[name] for name, ours in PLAIN.items() if name in given}
    return fields | _meshes(given, num_slices, devices_per_slice)


def from_fields(fields: Mapping[str, Any], *, scale: int = 1) -> dict[str, Any]:
    """Give MaxText's settings for the fields of an experiment.

    Args:
        fields: upper-case names and values; those that MaxText has no name for are left out.
        scale: divides the four settings that MaxText multiplies by it.

    Raises:
        ConfigError: `scale` does not divide one of them.
    """
    faults = [
        Fault(ours, f"is {fields[ours]}, which {scale} does not divide.", "Choose another scale.")
        for ours in SCALED.values()
        if fields.get(ours) is not None and fields[ours] % scale
    ]
    if faults:
        raise ConfigError("experiment", faults)
    settings: dict[str, Any] = {} if scale == 1 else {"scale": scale}
    settings |= {name: fields[ours] // scale for name, ours in SCALED.items() if fields.get(ours) is not None}
    settings |= {name: fields[ours] for name, ours in PLAIN.items() if fields.get(ours) is not None}
    for group, ours in (("ici", "ICI_MESH_SHAPE"), ("dcn", "DCN_MESH_SHAPE")):
        settings |= _parallelism(group, fields.get(ours))
    return settings


def _unknown(given: Mapping[str, Any]) -> list[Fault]:
    meshes = {f"{group}_{axis}_parallelism" for group in DEFAULT_FILL for axis in (*AXES, STAGE)}
    neutral = {f"{group}_{axis}_parallelism" for group in DEFAULT_FILL for axis in NEUTRAL_AXES}
    known = {*SCALED, *OLD_SCALED, *PLAIN, *meshes, *neutral, "scale", "global_parameter_scale", "run_name"}
    faults = [
        Fault(name, f"is {given[name]}.", "Our meshes have no such axis: only 1 can be taken over.")
        for name in given.keys() & neutral
        if given[name] != 1
    ]
    for name in given.keys() - known:
        near = nearest(name, known)
        advice = f"Did you mean '{near}'?" if near else "It has no counterpart: remove it, and set it by hand."
        faults.append(Fault(name, "cannot be taken over.", advice))
    return sorted(faults, key=lambda fault: fault.key)


def _too_many_fills(given: Mapping[str, Any]) -> list[Fault]:
    faults = []
    for group in DEFAULT_FILL:
        filled = [name for name, value in given.items() if name.startswith(f"{group}_") and value == -1]
        if len(filled) > 1:
            faults.append(Fault(", ".join(sorted(filled)), "are -1.", "One axis of a group may be -1, no more."))
    return faults


def _meshes(given: Mapping[str, Any], num_slices: int, devices_per_slice: int | None) -> dict[str, Any]:
    staged = any(given.get(f"{group}_{STAGE}_parallelism", 1) != 1 for group in DEFAULT_FILL)
    axes = (STAGE, *AXES) if staged else AXES
    found: dict[str, Any] = {}
    ici = _sizes(given, "ici", axes)
    if ici is not None:
        found["ICI_MESH_SHAPE"] = ici if devices_per_slice is None else _filled(ici, devices_per_slice, "ici")
    dcn = _sizes(given, "dcn", axes)
    if dcn is not None:
        found["DCN_MESH_SHAPE"] = _filled(dcn, num_slices, "dcn")
    if staged:
        stages = [found.get(ours, [1])[0] for ours in ("ICI_MESH_SHAPE", "DCN_MESH_SHAPE")]
        found["NUM_STAGES"] = stages[0] * stages[1]
        found |= {} if "DCN_MESH_SHAPE" in found else {"DCN_MESH_SHAPE": [1] * len(axes)}
    return found


def _sizes(given: Mapping[str, Any], group: str, axes: Sequence[str]) -> list[int] | None:
    named = [name for name in given if name.startswith(f"{group}_")]
    return [given.get(f"{group}_{axis}_parallelism", 1) for axis in axes] if named else None


def _filled(sizes: list[int], available: int, group: str) -> list[int]:
    if -1 not in sizes:
        return sizes
    others = 1
    for size in sizes:
        others *= 1 if size == -1 else size
    if available % others:
        what = "slices" if group == "dcn" else "devices of a slice"
        fault = Fault(f"{group}_*_parallelism", f"are {sizes}.", f"{others} does not divide {available} {what}.")
        raise ConfigError("MaxText settings", [fault])
    return [available // others if size == -1 else size for size in sizes]


def _parallelism(group: str, sizes: Sequence[int] | None) -> dict[str, int]:
    """Name the sizes that are not 1, as MaxText's files do; the axis it fills by itself is always named."""
    if sizes is None:
        return {}
    axes = AXES if len(sizes) == len(AXES) else (STAGE, *AXES)
    return {
        f"{group}_{axis}_parallelism": size
        for axis, size in zip(axes, sizes, strict=True)
        if size != 1 or axis == DEFAULT_FILL[group]
    }


def class_text(name: str, fields: Mapping[str, Any], base: str) -> str:
    """Write the fields as the source of an experiment class that derives from `base` (`package.module.Class`)."""
    module, _, parent = base.rpartition(".")
    show: Callable[[Any], str] = lambda value: repr(tuple(value) if isinstance(value, list) else value)  # noqa: E731
    lines = [f"    {key} = {show(value)}" for key, value in fields.items()]
    return "\n".join([
        f"from {module} import {parent}", "from xdpx.experiments.registry import experiment", "", "", "@experiment",
        f"class {name}({parent}):", f'    """Taken over from MaxText, on top of {parent}."""', "", *lines,
    ])  # fmt: skip
