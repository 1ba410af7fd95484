"""Lines as they stand in experiments and layers written for Pax: they work, or say in one line what to write."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from xdpx.config.pax_names import PAX_NAMES
from xdpx.experiments.lm import model_params
from xdpx.experiments.registry import resolve
from xdpx.main import main
from xdpx.models.spmd import base_layer
from xdpx.models.spmd.base_layer import BaseLayer, WeightHParams, WeightInit
from xdpx.models.spmd.language_model import TransformerLm
from xdpx.models.spmd.layers.attention import Attention
from xdpx.models.spmd.layers.repeated import StackedTransformerRepeated
from xdpx.models.spmd.layers.transformer import StackedTransformer, Transformer
from xdpx.optimizers.spmd.learner import Learner
from xdpx.tasks.spmd.single_task import SingleTask
from xdpx.tasks.spmd.train_fields import TrainHParams

DOCUMENT = Path(__file__).parents[2] / "docs" / "experiments.md"


@pytest.mark.parametrize(
    ("set_default", "like"),
    [("set_default_adam", "TransformerLmSpmdAdam"), ("set_default_adafactor", "TransformerLmSpmdAdafactor")],
)
def test_the_default_optimizers_of_pax_are_those_of_the_recipes(set_default: str, like: str) -> None:
    task_p = SingleTask.HParams(name="mine")
    wanted = getattr(model_params, like)().task().train.learner
    getattr(model_params, set_default)(task_p, wanted.optimizer.learning_rate, 1e-3)
    assert task_p.train.learner.diff(wanted) == ""
    getattr(model_params, set_default)(task_p, 1e-2, 0.0, warmup_steps=7)
    assert task_p.train.learner.optimizer.lr_schedule.warmup_steps == 7


class PaxLinear(BaseLayer):
    """A layer as Pax's are written."""

    class HParams(BaseLayer.HParams):
        """Widths."""

        input_dims: int = 0
        output_dims: int = 0

    def setup(self) -> None:
        p = self.hparams
        self.create_variable(
            "w",
            WeightHParams(
                shape=[p.input_dims, p.output_dims], init=WeightInit.Gaussian(0.1), mesh_shape=[1, 2, 1],
                tensor_split_dims_mapping=["data", ("replica", "mdl")],
            ),
        )  # fmt: skip
        count = WeightHParams(shape=[], dtype=jnp.int32, init=WeightInit.Constant(0), collections=["non_trainable"])
        self.create_variable("count", count)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.einsum("...d,df->...f", x, self.theta.w)


def test_weights_are_declared_as_in_pax() -> None:
    layer = PaxLinear.HParams(input_dims=4, output_dims=2).Instantiate()
    variables = jax.eval_shape(layer.init, jax.random.key(0), jnp.ones((1, 4)))
    assert variables["params"]["w"].names == ("data", ("replica", "mdl"))
    assert variables["non_trainable"]["count"].value.dtype == jnp.int32
    with pytest.raises(ValueError, match="'_lp_regularization' has no meaning here. Learners exclude"):
        WeightHParams(shape=[1], collections=["_lp_regularization"])
    with pytest.raises(ValueError, match="both specify how it is split"):
        base_layer.Weight([1], axes=("embed",), tensor_split_dims_mapping=["data"])


def told_by(line: Callable[[], Any]) -> str:
    with pytest.raises((AttributeError, TypeError)) as caught:
        line()
    return str(caught.value)


def test_each_field_of_pax_says_in_its_line_what_to_write() -> None:
    lm = TransformerLm.HParams(stacked_transformer_tpl=StackedTransformerRepeated.HParams())
    stack = StackedTransformer.HParams()
    lines = {
        "block": lambda: lm.stacked_transformer_tpl.block,
        "transformer_layer_params_tpl": lambda: stack.transformer_layer_params_tpl,
        "model_dims": lambda: stack.set(model_dims=8),
        "tr_atten_tpl": lambda: Transformer.HParams().tr_atten_tpl,
        "atten_logit_cap": lambda: setattr(Attention.HParams(), "atten_logit_cap", 50.0),
        "repeat_prefix_sep": lambda: setattr(Learner.HParams(), "repeat_prefix_sep", "#"),
        "inputs_split_mapping": lambda: setattr(TrainHParams(), "inputs_split_mapping", None),
        "ACTIVATION_CLS": lambda: type("Mine", (model_params.TransformerLmSpmdAdam,), {"ACTIVATION_CLS": 1}),
    }
    for name, line in lines.items():
        told = told_by(line)
        assert f"Pax's {name} is here: {PAX_NAMES[name]}." in told
        assert "\n" not in told


def test_what_a_field_of_pax_is_called_here_is_a_field_here() -> None:
    recipe = resolve("C4Spmd1BAdam4Replicas")
    templates = (Attention, Transformer, StackedTransformer, StackedTransformerRepeated, Learner, TransformerLm)
    fields = set().union(*(template.HParams._field_table for template in templates), {"hidden_dropout_prob"})
    for name, here in PAX_NAMES.items():
        first = re.match(r"\w+", here)[0]
        assert first in {"rules", "nothing"} or first in fields or hasattr(recipe, first), name


def test_the_document_shows_the_same_names() -> None:
    text = DOCUMENT.read_text()
    for name, here in PAX_NAMES.items():
        assert f"| `{name}` | {here} |" in text, f"| `{name}` | {here} |"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--fdl_set", "model.dims=3"], "--fdl_set: is not available here. Write --set NAME=value"),
        (["--fdl_set=NUM_LAYERS=3"], "--fdl_set: is not available here. Write --set NAME=value"),
        (["--set=ACTIVATION_CLS=GELU", "--describe"], "Pax's ACTIVATION_CLS is here: ACTIVATION, by name"),
    ],
)
def test_flags_of_pax_are_answered_in_one_line(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["C4Spmd1BAdam4Replicas", *words]) == 2
    assert told in capsys.readouterr().err
