"""Conversion between flat MaxText settings and the fields of an experiment.

| MaxText                | fields                                                         |
|------------------------|----------------------------------------------------------------|
| base_num_decoder_layers, base_emb_dim, base_mlp_dim, base_num_heads (each times `scale`) | NUM_LAYERS, MODEL_DIMS, HIDDEN_DIMS, NUM_HEADS |
| head_dim, per_device_batch_size, max_target_length, vocab_size | DIMS_PER_HEAD, PERCORE_BATCH_SIZE, MAX_SEQ_LEN, VOCAB_SIZE |
| dtype, scan_layers, log_period, steps, learning_rate | FPROP_DTYPE, USE_REPEATED_LAYER, SUMMARY_INTERVAL_STEPS, MAX_STEPS, LEARNING_RATE |
| ici_{data,fsdp,tensor}_parallelism | ICI_MESH_SHAPE, with `stage` in front when there is a pipeline |
| dcn_{data,fsdp,tensor}_parallelism | DCN_MESH_SHAPE |
| ici_pipeline_parallelism x dcn_pipeline_parallelism | NUM_STAGES |
| num_pipeline_microbatches, num_pipeline_repeats | NUM_MICROBATCHES, CIRCULAR_REPEAT |
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xdpx.config.faults import ConfigError, Fault, did_you_mean
from xdpx.experiments.meshes import fill

SCALED = {"base_num_decoder_layers": "NUM_LAYERS", "base_emb_dim": "MODEL_DIMS", "base_mlp_dim": "HIDDEN_DIMS",
          "base_num_heads": "NUM_HEADS"}  # fmt: skip
OLD_SCALED = {"base_num_query_heads": "base_num_heads"}
"""Current MaxText name -> the older name used in `SCALED`."""

PLAIN = {"head_dim": "DIMS_PER_HEAD", "per_device_batch_size": "PERCORE_BATCH_SIZE", "max_target_length": "MAX_SEQ_LEN",
         "vocab_size": "VOCAB_SIZE", "dtype": "FPROP_DTYPE", "scan_layers": "USE_REPEATED_LAYER",
         "log_period": "SUMMARY_INTERVAL_STEPS", "steps": "MAX_STEPS", "learning_rate": "LEARNING_RATE"}  # fmt: skip
AXES = ("data", "fsdp", "tensor")
NEUTRAL_AXES = ("diloco", "fsdp_transpose", "context", "context_usp_ulysses", "context_autoregressive", "sequence",
                "tensor_sequence", "tensor_transpose", "expert", "autoregressive")  # fmt: skip
"""MaxText axes that our meshes do not have: only 1 can be converted."""

STAGE = "pipeline"
MICROBATCHES, REPEATS, STAGE_LAYERS = (
    "num_pipeline_microbatches",
    "num_pipeline_repeats",
    "num_layers_per_pipeline_stage",
)
"""Pipeline settings. MaxText replaces -1, the default of the first two: as many micro-batches as stages, and as many
rounds as the layers allow with num_layers_per_pipeline_stage (1) layers per stage and round."""

SOURCE = "MaxText settings"
DEFAULT_FILL = {"ici": "fsdp", "dcn": "data"}
"""The axes that MaxText fills (-1) by default."""


def to_fields(
    settings: Mapping[str, Any], *, num_slices: int = 1, devices_per_slice: int | None = None
) -> dict[str, Any]:
    """Return the fields of an experiment for MaxText settings.

    Args:
        settings: MaxText names and values; settings that are not about sizes, meshes or steps are rejected.
        num_slices: used to fill a -1 of dcn_*.
        devices_per_slice: used to fill a -1 of ici_*; None leaves the -1, to be filled from the actual devices.

    Raises:
        ConfigError: lists every setting that cannot be converted.
    """
    given = {OLD_SCALED.get(name, name): value for name, value in settings.items()}
    faults = [*_unknown(given), *_too_many_fills(given)]
    if faults:
        raise ConfigError(SOURCE, faults)
    scale = given.get("scale", given.get("global_parameter_scale", 1))
    fields = {ours: given[name] * scale for name, ours in SCALED.items() if name in given}
    fields |= {ours: given[name] for name, ours in PLAIN.items() if name in given}
    fields |= _meshes(given, num_slices, devices_per_slice)
    return fields | (_pipeline(given, fields) if "NUM_STAGES" in fields else {})


def from_fields(fields: Mapping[str, Any], *, scale: int = 1) -> dict[str, Any]:
    """Return MaxText's settings for the fields of an experiment.

    Args:
        fields: upper-case names and values; those without a MaxText name are omitted.
        scale: divisor of the four settings that MaxText multiplies by it.

    Raises:
        ConfigError: `scale` does not divide one of the four.
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
    if fields.get("NUM_STAGES"):
        settings |= _stages(fields)
    return settings


def _unknown(given: Mapping[str, Any]) -> list[Fault]:
    meshes = {f"{group}_{axis}_parallelism" for group in DEFAULT_FILL for axis in (*AXES, STAGE)}
    neutral = {f"{group}_{axis}_parallelism" for group in DEFAULT_FILL for axis in NEUTRAL_AXES}
    known = {*SCALED, *OLD_SCALED, *PLAIN, *meshes, *neutral, "scale", "global_parameter_scale", "run_name",
             MICROBATCHES, REPEATS, STAGE_LAYERS}  # fmt: skip
    faults = [
        Fault(name, f"is {given[name]}.", "Our meshes have no such axis: only 1 can be converted.")
        for name in given.keys() & neutral
        if given[name] != 1
    ]
    for name in given.keys() - known:
        advice = did_you_mean(name, known, "It has no counterpart: remove it, and set it by hand.")
        faults.append(Fault(name, "cannot be converted.", advice))
    return sorted(faults, key=lambda fault: fault.key)


def _too_many_fills(given: Mapping[str, Any]) -> list[Fault]:
    faults = []
    for group in DEFAULT_FILL:
        filled = [name for name, value in given.items() if name.startswith(f"{group}_") and value == -1]
        if len(filled) > 1:
            faults.append(Fault(", ".join(sorted(filled)), "are -1.", "At most one axis of a group may be -1."))
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
    what = "slices" if group == "dcn" else "devices of a slice"
    return list(fill(SOURCE, f"{group}_*_parallelism", sizes, available, what=what))


def _pipeline(given: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pipeline fields for micro-batches and rounds, with MaxText's defaults."""
    stages, layers = fields["NUM_STAGES"], fields.get("NUM_LAYERS")
    if stages < 1:
        problem = f"leaves {-stages} stages open."
        raise ConfigError(SOURCE, [Fault(f"*_{STAGE}_parallelism", problem, "Give a number, or devices= and slices=.")])
    microbatches, repeats, each = (given.get(name, -1) for name in (MICROBATCHES, REPEATS, STAGE_LAYERS))
    # A base class may set MICROBATCH_SIZE, and only one of the two may be set.
    found = {"NUM_MICROBATCHES": stages if microbatches == -1 else microbatches, "MICROBATCH_SIZE": None}
    if repeats != -1:
        return found | {"CIRCULAR_REPEAT": repeats}
    if layers is None:
        return found
    chunk = stages * (1 if each == -1 else each)
    if layers % chunk:
        remedy = f"Use a multiple of {chunk}, or another {STAGE_LAYERS}."
        raise ConfigError(SOURCE, [Fault("base_num_decoder_layers", f"gives {layers} layers.", remedy)])
    return found | {"CIRCULAR_REPEAT": layers // chunk}


def _stages(fields: Mapping[str, Any]) -> dict[str, int]:
    """Return MaxText's pipeline settings; that of the micro-batches only if their number is known."""
    repeats, stages, layers = fields.get("CIRCULAR_REPEAT", 1), fields["NUM_STAGES"], fields.get("NUM_LAYERS")
    settings = {REPEATS: repeats}
    if layers is not None:
        settings[STAGE_LAYERS] = layers // (stages * repeats)
    if fields.get("NUM_MICROBATCHES"):
        settings[MICROBATCHES] = fields["NUM_MICROBATCHES"]
    return settings


def _parallelism(group: str, sizes: Sequence[int] | None) -> dict[str, int]:
    """Return the sizes that are not 1, as in MaxText's files, and always that of MaxText's default fill axis."""
    if sizes is None:
        return {}
    axes = AXES if len(sizes) == len(AXES) else (STAGE, *AXES)
    return {
        f"{group}_{axis}_parallelism": size
        for axis, size in zip(axes, sizes, strict=True)
        if size != 1 or axis == DEFAULT_FILL[group]
    }


def class_text(name: str, fields: Mapping[str, Any], base: str) -> str:
    """Return the source of an experiment class with these fields, derived from `base` (`package.module.Class`)."""
    module, _, parent = base.rpartition(".")
    show: Callable[[Any], str] = lambda value: repr(tuple(value) if isinstance(value, list) else value)  # noqa: E731
    lines = [f"    {key} = {show(value)}" for key, value in fields.items()]
    return "\n".join([
        f"from {module} import {parent}", "from xdpx.experiments.registry import experiment", "", "", "@experiment",
        f"class {name}({parent}):", f'    """Converted from MaxText, on top of {parent}."""', "", *lines,
    ])  # fmt: skip
