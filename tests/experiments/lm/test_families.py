"""The shipped families against the table of what the originals resolve to."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from xdpx.experiments.fields import fields_of
from xdpx.experiments.lm.model_params import TransformerLm
from xdpx.experiments.registry import names, resolve
from xdpx.experiments.shipped import SHIPPED

TABLE = json.loads((Path(__file__).parent / "families.json").read_text())


def test_the_table_of_shipped_names_is_what_the_modules_register() -> None:
    for module in SHIPPED:
        importlib.import_module(module)
    registered = {name for name in names() if name.startswith("xdpx.experiments.lm.")}
    listed = {f"{module}.{name}" for module, all_names in SHIPPED.items() for name in all_names}
    assert registered == listed


def test_every_experiment_of_the_three_original_files_ships() -> None:
    ours = {(module.rpartition(".")[2], name) for module, all_names in SHIPPED.items() for name in all_names}
    renamed_away = ("c4", "C4SpmdPipelineGpt3SmallAdam64Replicas")
    assert ours == {(row["file"], row["name"]) for row in TABLE} | {renamed_away}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["name"])
def test_sizes_mesh_batch_and_optimizer_are_those_of_the_table(row: dict[str, Any]) -> None:
    one = resolve(f"lm.{row['file']}.{row['name']}")()
    one.validate()
    ours: dict[str, Any] = {
        "L": one.NUM_LAYERS, "pcb": one.PERCORE_BATCH_SIZE, "wd": one.WEIGHT_DECAY,
        "clip": one.CLIP_GRADIENT_NORM_TO_VALUE,
        "b1": one.ADAM_BETA1, "b2": one.ADAM_BETA2, "sched": one.LR_SCHEDULE, "steps": one.MAX_STEPS,
        "ck": one.CHECKPOINT_EVERY_N_STEPS, "ev": one.EVAL_INTERVAL_STEPS, "lr": one.learning_rate(),
    }  # fmt: skip
    if row["ici"]:
        mesh = one.mesh_shape()
        dcn = mesh.dcn or (1,) * len(mesh.ici)
        ours |= {"ici": list(mesh.ici), "dcn": list(dcn), "chips": mesh.num_devices, "gb": one.global_batch()}
    if isinstance(one, TransformerLm):
        ours |= {
            "d": one.MODEL_DIMS, "ff": one.hidden_dims, "heads": one.num_heads, "dh": one.DIMS_PER_HEAD,
            "V": one.VOCAB_SIZE, "seq": one.MAX_SEQ_LEN, "rep": one.USE_REPEATED_LAYER, "stages": one.NUM_STAGES,
            "dtype": one.FPROP_DTYPE, "remat": one.CHECKPOINT_POLICY.upper(),
        }  # fmt: skip
        if one.NUM_STAGES:
            ours |= {"mb": one.MICROBATCH_SIZE, "circ": one.CIRCULAR_REPEAT, "stream": one.STREAM_IO}
    wanted = {key: row[key] for key in ours if not (row[key] is None or row[key] == "None")}
    assert {key: ours[key] for key in wanted} == wanted


def test_every_field_of_every_family_has_a_type() -> None:
    for name in names():
        assert all(field.type_name for field in fields_of(resolve(name)).values())
