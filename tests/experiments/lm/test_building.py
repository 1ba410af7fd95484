"""Tasks of the shipped experiments: they resolve, and have as many parameters as the table says."""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.tiers import some
from xdpx.config.faults import ConfigError
from xdpx.config.hparams import build, to_fiddle
from xdpx.engines.spmd.partitioning import without_boxes
from xdpx.experiments.fields import with_values
from xdpx.experiments.lm.model_params import TransformerLm
from xdpx.experiments.planning import flops_of, specs_of
from xdpx.experiments.registry import names, resolve
from xdpx.optimizers.spmd.learner import Learner

TABLE = {row["name"]: row for row in json.loads((Path(__file__).parent / "families.json").read_text())}
SHIPPED = [name for name in names() if name.startswith("xdpx.experiments.lm.")]
LANGUAGE = [name for name in SHIPPED if issubclass(resolve(name), TransformerLm)]
TINY: dict[str, Any] = {
    "NUM_LAYERS": 2, "MODEL_DIMS": 32, "DIMS_PER_HEAD": 8, "NUM_HEADS": 4, "VOCAB_SIZE": 64, "MAX_SEQ_LEN": 16,
    "TRAINABLE_PE_MAX_SEQ_LEN": 16, "ICI_MESH_SHAPE": (1, 1, 1), "DCN_MESH_SHAPE": None, "PERCORE_BATCH_SIZE": 2,
}  # fmt: skip
OF_EACH_KIND = (
    "C4Spmd16BAdam32Replicas", "C4SpmdAdam", "C4SpmdPipelineAdam", "C4SpmdGpt3AdamOrgHPBS1p5k1536Replicas",
    "C4SpmdPipelineGpt3AdamMLPerfHPBS2k512Replicas", "C4Spmd22BAdamMaxText", "LmCloudSpmdPipeline9B",
    "LmCloudTransformerAdamTest",
)  # fmt: skip
"""Their sizes are traced by day; tests/experiments/lm/test_families.py compares the fields of all."""
SIZES = (
    "NUM_LAYERS",
    "MODEL_DIMS",
    "HIDDEN_DIMS",
    "NUM_HEADS",
    "DIMS_PER_HEAD",
    "VOCAB_SIZE",
    "TRAINABLE_POSITION_EMB",
)


@functools.cache
def parameters(name: str, sizes: tuple[Any, ...]) -> dict[str, int]:
    """Numbers by the path of their weight, with layers repeated, which changes none but traces one of them only."""
    one = resolve(name)(**dict(zip(SIZES, sizes, strict=True)))
    spec = specs_of(one).Transform(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype))
    boxed = jax.eval_shape(build(one.counted_task()).init, jax.eval_shape(lambda: jax.random.key(0)), spec)
    leaves = jax.tree_util.tree_leaves_with_path(without_boxes(boxed["params"]))
    return {jax.tree_util.keystr(path): int(np.prod(leaf.shape, dtype=np.int64)) for path, leaf in leaves}


def count(name: str) -> dict[str, int]:
    cls = resolve(name)
    sizes = tuple(getattr(cls, field) for field in SIZES)
    first = next(other for other in LANGUAGE if tuple(getattr(resolve(other), field) for field in SIZES) == sizes)
    return parameters(first, sizes)


@pytest.mark.parametrize(
    "name",
    some(LANGUAGE, [each for each in LANGUAGE if each.endswith(OF_EACH_KIND)]),
    ids=lambda name: name.rpartition(".")[2],
)
def test_parameters_are_those_of_the_table_within_its_rounding(name: str) -> None:
    one = resolve(name)()
    found = count(name)
    positions = sum(size for path, size in found.items() if "position_emb" in path)
    assert positions == (one.TRAINABLE_PE_MAX_SEQ_LEN * one.MODEL_DIMS if one.TRAINABLE_POSITION_EMB else 0)
    table = TABLE.get(name.rpartition(".")[2], {"N": 2.875195392})["N"] * 1e9
    assert sum(found.values()) - positions == pytest.approx(table, rel=1e-3)


@pytest.mark.parametrize("name", SHIPPED, ids=lambda name: name.rpartition(".")[2])
def test_every_shipped_task_resolves_to_a_fiddle_config(name: str) -> None:
    task = resolve(name)().task()
    assert to_fiddle(task).train.num_train_steps == resolve(name).MAX_STEPS
    assert isinstance(build(task.train.learner), Learner)


def test_fields_reach_the_templates() -> None:
    task = resolve("C4SpmdGpt3AdamOrgHPBS1p5k1536Replicas")().task()
    adam, lm = task.train.learner.optimizer, task.model.lm_tpl
    assert (adam.beta2, adam.epsilon, adam.clip_threshold, adam.weight_decay) == (0.95, 1e-8, 0.0, 0.1)
    assert (adam.learning_rate, adam.lr_schedule.warmup_steps, adam.lr_schedule.decay_end) == (6e-5, 265, 108_600)
    assert (lm.softmax_tpl.soft_cap_logits, lm.final_ln_tpl.epsilon, task.model.params_init.scale) == (
        None,
        1e-5,
        0.006,
    )
    assert task.early_stopping_fn.target == pytest.approx(2.69)


def test_sizes_below_one_are_refused_together() -> None:
    bad = dict.fromkeys(("MODEL_DIMS", "DIMS_PER_HEAD", "VOCAB_SIZE", "CIRCULAR_REPEAT", "MICROBATCH_SIZE"), 0)
    with pytest.raises(ConfigError) as refused:
        resolve("C4SpmdPipelineAdam")(**bad).validate()
    assert {fault.key for fault in refused.value.faults} == set(bad)


@pytest.mark.parametrize("other", ["USE_ROTARY_POSITION_EMB", "RELATIVE_BIAS"])
def test_two_kinds_of_positions_of_which_one_would_be_ignored_are_refused(other: str) -> None:
    given: dict[str, Any] = {other: True, "TRAINABLE_POSITION_EMB": True}
    with pytest.raises(ConfigError, match=f"TRAINABLE_POSITION_EMB: contradicts {other}"):
        resolve("C4SpmdAdam")(**given).validate()


def test_fields_that_the_schedule_or_the_optimizer_does_not_read_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = resolve("C4SpmdAdam")
    recipe(LR_COS_WARMUP=10, LR_LRED_WARMUP=5, OPTIMIZER="sharded_adafactor", ADAM_BETA1=0.8, ADAM_BETA2=0.9).validate()
    told = " ".join(capsys.readouterr().err.split())
    assert "LR_COS_WARMUP: is set, but has no effect with LR_SCHEDULE 'linear_rampup_exponential_decay'" in told
    assert "ADAM_BETA2: is set, but has no effect with OPTIMIZER 'sharded_adafactor', only with adam." in told
    assert told.count("has no effect") == 2
    with_values(recipe, {"ADAFACTOR_DECAY": "0.9"})().validate()
    assert "ADAFACTOR_DECAY: is set, but has no effect with OPTIMIZER 'adam'" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["float33", "int32"])
def test_what_no_model_computes_in_is_refused(dtype: Any) -> None:
    with pytest.raises(ConfigError, match=f"FPROP_DTYPE: is {dtype!r}. Use 'float32'"):
        resolve("C4Spmd1BAdam4Replicas")(FPROP_DTYPE=dtype).task()


def test_the_schedule_of_mlperf_follows_the_batch() -> None:
    small = resolve("C4SpmdPipelineGpt3AdamMLPerfHPBS2k512Replicas")()
    large = resolve("C4SpmdPipelineGpt3AdamMLPerfHPBS4k1024Replicas")()
    assert (small.learning_rate(), large.learning_rate()) == (2e-5, 3e-5)
    assert large.cosine_steps() == (99, 100, 40725)


def test_flops_are_those_of_palm_and_the_last_norm_of_the_formula() -> None:
    one = resolve("C4Spmd1BAdam4Replicas")(**TINY)
    matrices = sum(size for path, size in parameters_of(one).items() if path.endswith(("['w']", "['emb_var']")))
    layers, width, length = one.NUM_LAYERS, one.MODEL_DIMS, one.MAX_SEQ_LEN
    # 6 N + 12 L d s, attention in full: Chowdhery et al., PaLM, arXiv 2204.02311, appendix B.
    per_token = 6 * matrices + 12 * layers * width * length
    assert flops_as_shipped().training == per_token * one.global_batch() * one.MAX_SEQ_LEN


def parameters_of(one: Any) -> dict[str, int]:
    boxed = jax.eval_shape(build(one.counted_task()).init, jax.eval_shape(lambda: jax.random.key(0)), specs_of(one))
    leaves = jax.tree_util.tree_leaves_with_path(without_boxes(boxed["params"]))
    return {jax.tree_util.keystr(path): leaf.size for path, leaf in leaves}


@functools.cache
def flops_as_shipped() -> Any:
    return flops_of(resolve("C4Spmd1BAdam4Replicas")(**TINY))


@pytest.mark.parametrize(
    "style", [{"LOOKUP_STYLE": "index"}, {"CHECKPOINT_POLICY": "everything"}, {"USE_REPEATED_LAYER": False}]
)
def test_how_a_model_computes_does_not_change_its_flops(style: dict[str, Any]) -> None:
    cls = resolve("C4Spmd1BAdam4Replicas")
    assert flops_of(cls(**TINY, **style)).flops == flops_as_shipped().flops


def test_bubbles_of_a_pipeline_are_no_work_of_the_model() -> None:
    staged = TINY | {"ICI_MESH_SHAPE": (2, 1, 1, 1), "PERCORE_BATCH_SIZE": 1, "MICROBATCH_SIZE": 1}
    pipeline = resolve("C4SpmdPipelineGpt3SmallAdam8Replicas")(**staged)
    plain = resolve("C4SpmdGpt3L16AdamOrgHP")(**TINY)
    assert flops_of(pipeline).flops == flops_of(plain).flops
