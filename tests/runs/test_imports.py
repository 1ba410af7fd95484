"""A process that others are forked off imports what a training needs, and nothing that takes seconds in vain."""

from __future__ import annotations

import pytest

from xdpx.config.loading import Run
from xdpx.runs.imports import COMPILER, OF_PYTORCH, modules_of


def run_of(model: str = "cls_cnn", loss: str = "cross_entropy", **values: object) -> Run:
    picks = {("", "model"): model, ("", "loss"): loss}
    return Run("x-train", "test", 0, values, frozenset(), {}, picks)


def names_transformers(names: list[str]) -> bool:
    return any("transformers" in name or "bert" in name for name in names)


def test_a_small_network_needs_neither_transformers_nor_the_compiler() -> None:
    names = modules_of(run_of())
    assert {*OF_PYTORCH, "xdpx.models.pytorch.convolutional", "xdpx.losses.cross_entropy"} <= {*names}
    assert not names_transformers(names)
    assert COMPILER not in names


def test_a_model_of_transformers_brings_its_module() -> None:
    assert "xdpx.models.pytorch.bert_lm" in modules_of(run_of(model="bert_lm", loss="masked_lm"))


@pytest.mark.parametrize("values", [{"compile": True}, {"strategy": "fsdp"}, {"strategy": "deepspeed"}])
def test_what_compiles_or_shares_out_weights_needs_the_compiler(values: dict[str, object]) -> None:
    assert COMPILER in modules_of(run_of(**values))


def test_a_model_of_the_users_own_may_need_all() -> None:
    names = modules_of(run_of(model="own"))
    assert names_transformers(names)
    assert COMPILER in names


def test_a_run_on_jax_imports_nothing_of_the_other_engine() -> None:
    assert not {*OF_PYTORCH, COMPILER} & {*modules_of(run_of(engine="spmd"))}
