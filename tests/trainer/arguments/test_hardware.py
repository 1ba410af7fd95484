from __future__ import annotations

import pytest
import torch

from xdpx.trainer.arguments import CompileOptions, TrainingArguments
from xdpx.trainer.arguments.hardware import compile_options, has_bf16, has_tf32


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
def test_without_an_accelerator_there_is_neither() -> None:
    assert (has_bf16(), has_tf32()) == (False, False)


def test_compilation_is_off_by_default() -> None:
    assert compile_options(TrainingArguments(), {}) is None
    assert compile_options(TrainingArguments(), {"ACCELERATE_DYNAMO_BACKEND": "NO"}) is None


def test_the_arguments_decide() -> None:
    made = TrainingArguments(torch_compile_backend="eager", torch_compile_mode="max-autotune")
    assert compile_options(made, {}) == CompileOptions("eager", "max-autotune")


def test_accelerates_launcher_may_ask_for_it() -> None:
    environment = {
        "ACCELERATE_DYNAMO_BACKEND": "INDUCTOR",
        "ACCELERATE_DYNAMO_MODE": "default",
        "ACCELERATE_DYNAMO_USE_FULLGRAPH": "True",
        "ACCELERATE_DYNAMO_USE_DYNAMIC": "False",
    }
    assert compile_options(TrainingArguments(), environment) == CompileOptions("inductor", None, True, None)
