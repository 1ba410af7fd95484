"""What a task, a loss, a sampler or an engine is able to do is declared by its base class; nobody probes for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "xdpx"
ROOMS = ("engines", "training", "runs", "tasks")

FOREIGN = {
    "_fields": "namedtuple",
    "last_exc": "sys, from Python 3.12 on",
    "last_value": "sys, before",
    "SIGUSR1": "signal: not on every system",
    "setitimer": "signal: not on every system",
    "to_local": "DTensor",
    "device_mesh": "DTensor",
    "ds_id": "weights of DeepSpeed",
    "_orig_mod": "a module that torch.compile wraps",
    "config": "models of transformers",
    "hidden_size": "configs of transformers",
    "hidden_sizes": "configs of transformers",
    "_no_split_modules": "models of transformers",
    "hf_device_map": "models of transformers",
    "is_quantized": "models of transformers",
    "is_activation_checkpointing": "models of transformers",
    "is_gradient_checkpointing": "models of transformers, before 5.2",
    "generate": "models of transformers",
    "xla": "fsdp_config of the original",
    "fused_backward": "LOMO of the package lomo-optim",
    "to": "batches that move themselves",
    "detach": "a tensor of torch where only JAX is needed",
    "nbytes": "arrays of torch, NumPy and JAX",
    "train": "optimizers of schedulefree",
    "eval": "optimizers of schedulefree",
    "names": "a partition of flax",
    "slice_index": "devices of JAX: TPUs alone",
    "val": "literals of JAX",
    "jaxpr": "jaxprs of JAX, closed or open",
    "value": "enums of JAX and others",
    "flops": "cost estimates of JAX",
    "_linear_pointwise": "oneDNN in torch",
    "sharding": "arrays of JAX",
    "loss_key": "hparams of a user's own aggregator",
}
"""Attributes that may be asked for, since their owner is not a class of ours and need not have them."""


def probes(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, attribute) of each `hasattr`, and of each `getattr` with a default, that names its attribute."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            continue
        asks = node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) == 3)
        if asks and isinstance(node.args[1], ast.Constant):
            yield node.lineno, str(node.args[1].value)


def test_no_ability_of_our_own_classes_is_probed() -> None:
    found = {
        f"{file.relative_to(PACKAGE)}:{line}": name
        for room in ROOMS
        for file in (PACKAGE / room).rglob("*.py")
        for line, name in probes(file.read_text(encoding="utf-8"))
        if name not in FOREIGN
    }
    assert not found, "declare it in the base class, with a default that does nothing"


def test_a_probe_is_found() -> None:
    assert list(probes("if hasattr(task, 'begin_update'): ...")) == [(1, "begin_update")]
    assert list(probes("several = getattr(task, 'train_passes', None)")) == [(1, "train_passes")]
    assert not list(probes("value = getattr(options, key)"))
