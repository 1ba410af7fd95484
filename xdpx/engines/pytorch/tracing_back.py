"""Run the passes of an update again with hooks on every module, to find what first produced NaN or infinity.

No hooks exist before that, so a training that stays finite has no overhead. Each check waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from xdpx.engines.calls import Call, first_of
from xdpx.engines.origin import NonFiniteOrigin, TensorFacts, in_rows
from xdpx.engines.pytorch.strategies.states import is_shard

TakeAgain = Callable[[Any, bool], Iterable[Tensor]]
"""Runs forward and backward on (micro-batch, whether it is the last one); yields the loss of each pass."""


def facts_of(name: str, tensor: Tensor) -> TensorFacts:
    """Return the facts of a tensor, of this process's shard if it is sharded. Waits for the device."""
    values = tensor.detach()
    values = values.to_local() if is_shard(values) else values
    values = values.coalesce().values() if values.is_sparse else values
    kind, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
    if not values.is_floating_point() or not values.numel():
        return TensorFacts(name, kind, shape)
    finite = values.isfinite()
    nan, inf = int(values.isnan().sum()), int(values.isposinf().sum())
    all_bad = not bool(finite.any())
    ends = torch.stack(values[finite].aminmax()).tolist() if not all_bad else [float("nan")] * 2
    rows: tuple[int, ...] = ()
    if not bool(finite.all()) and values.dim() and not tensor.is_sparse:
        rows = tuple((~finite).reshape(len(values), -1).any(dim=1).nonzero().flatten().tolist())
    return TensorFacts(name, kind, shape, nan, inf, int(values.isneginf().sum()), ends[0], ends[1], rows)


def origin_of(model: nn.Module, batches: Sequence[Any], take_again: TakeAgain) -> NonFiniteOrigin | None:
    """Return where NaN or infinity first appears in the update of some micro-batches; None if everything is finite.

    Gradients, buffers and torch's random generators are restored. The weights must be those before the update.

    Args:
        model: whose modules are checked.
        batches: micro-batches of the update. All of them are run, because other processes may wait in their passes.
        take_again: runs the passes over one of them.
    """
    found = _in_weights(model)
    parameters = list(model.named_parameters())
    with _left_as_it_was(model):
        for index, batch in enumerate(batches):
            entries = _in_batch(batch, index)
            with _Listening(model) as heard, torch.compiler.set_stance("force_eager"):
                losses = list(take_again(batch, index == len(batches) - 1))
            here = entries or heard.origin(losses)
            if found is None and here is not None:
                rows = here.rows or in_rows([*here.made, *here.given], _num_rows(batch))
                found = replace(here, micro_batch=index, rows=rows)
        return found or _in_sums(parameters)


@contextmanager
def _left_as_it_was(model: nn.Module) -> Generator[None]:
    """Restore gradients, buffers and torch's random generators at the end of the block."""
    cuda = list({each.device for each in model.parameters() if each.device.type == "cuda"})
    gradients = [(weight, weight.grad) for weight in model.parameters()]
    for weight, _ in gradients:
        weight.grad = None
    try:
        with torch.random.fork_rng(devices=cuda), buffers_kept(model):
            yield
    finally:
        for weight, gradient in gradients:
            weight.grad = gradient


@contextmanager
def buffers_kept(model: nn.Module) -> Generator[None]:
    """Restore the buffers of a model at the end of the block, such as the statistics of BatchNorm in training mode."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for buffer, before in buffers:
            if not torch.equal(buffer, before):
                buffer.data.copy_(before)


def _in_weights(model: nn.Module) -> NonFiniteOrigin | None:
    for name, weight in model.named_parameters():
        facts = facts_of(name, weight)
        if facts.is_bad or facts.negative_inf:
            return NonFiniteOrigin("weights", name, made=[facts])
    return None


def _in_batch(batch: object, index: int) -> NonFiniteOrigin | None:
    for name, value in _floats("", batch):
        facts = facts_of(name, value)
        if facts.is_bad:
            return NonFiniteOrigin("batch", name, made=[facts], micro_batch=index, rows=facts.rows)
    return None


def _in_sums(parameters: Iterable[tuple[str, nn.Parameter]]) -> NonFiniteOrigin | None:
    """Return the weight with a non-finite gradient, or else with the largest one, if the norm is not finite."""
    facts = [facts_of(name, weight.grad) for name, weight in parameters if weight.grad is not None]
    bad = next((each for each in facts if each.is_bad or each.negative_inf), None)
    if bad is not None:
        return NonFiniteOrigin("sum", bad.name, made=[bad], notes=["micro by micro-batch they were finite"])
    if not facts:
        return None
    squares = sum(each.size**2 for each in facts)  # in float64, while the device adds in float32
    largest = max(facts, key=lambda each: each.size)
    if squares < torch.finfo(torch.float32).max:
        return None
    note = f"the largest gradient is {largest.size:.4g}, whose square does not fit float32"
    return NonFiniteOrigin("sum", largest.name, made=[largest], notes=[note])


def _floats(name: str, tree: Any) -> Generator[tuple[str, Tensor]]:
    """Yield the floating tensors in nested values, by name."""
    if isinstance(tree, Tensor):
        if tree.is_floating_point():
            yield name, tree
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _floats(f"{name}.{key}" if name else str(key), value)
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from _floats(f"{name}.{index}" if name else str(index), value)
    elif isinstance(tree, np.ndarray) and tree.dtype.kind == "f":
        yield name, torch.as_tensor(tree)


def _num_rows(batch: object) -> int:
    """Return the number of rows of a batch: the most frequent first dimension of its tensors; 0 without tensors."""
    sizes = [shape[0] for shape in _shapes(batch) if shape]
    return max(set(sizes), key=sizes.count) if sizes else 0


def _shapes(tree: Any) -> Generator[tuple[int, ...]]:
    if isinstance(tree, Mapping):
        for value in tree.values():
            yield from _shapes(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _shapes(value)
    elif isinstance(tree, Tensor | np.ndarray):
        yield tuple(tree.shape)


class _Listening:
    """Hooks on all modules of a model while the context lasts, and what they recorded."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._opened = ExitStack()
        self._open: list[tuple[Call, nn.Module]] = []
        self._begun: list[Call] = []
        self._ended: list[Call] = []
        self._modules: dict[int, nn.Module] = {}
        self._kept: list[Tensor] = []  # so that no id() is reused
        self._moment = 0

    def __enter__(self) -> _Listening:
        root = type(self._model).__name__
        for name, module in self._model.named_modules():
            self._listen(name or root, module)
        for name, weight in self._model.named_parameters():
            if weight.requires_grad:
                hook = weight.register_hook(partial(self._weight, name.rpartition(".")[0] or root, name))  # type: ignore[no-untyped-call]
                self._opened.callback(hook.remove)
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _listen(self, name: str, module: nn.Module) -> None:
        before = module.register_forward_pre_hook(partial(self._begin, name), with_kwargs=True)
        after = module.register_forward_hook(self._end)
        for hook in (before, after):
            self._opened.callback(hook.remove)

    def _begin(self, name: str, module: nn.Module, inputs: Sequence[Any], named: Mapping[str, Any]) -> None:
        call = Call(name, type(module).__name__, self._open[-1][0] if self._open else None)
        self._begun.append(call)
        self._open.append((call, module))
        for entry, tensor in [*_floats("input", list(inputs)), *_floats("input", dict(named))]:
            call.given.append(facts_of(entry, tensor))
            if tensor.requires_grad:
                self._kept.append(tensor)
                call.inputs.add(id(tensor))
                tensor.register_hook(partial(self._gave, call))  # type: ignore[no-untyped-call]

    def _end(self, module: nn.Module, inputs: object, output: object) -> None:
        while self._open:  # a call that ended with an exception never gets here itself
            call, called = self._open.pop()
            if called is module:
                break
        else:
            return
        for entry, tensor in _floats("output", output):
            call.made.append(facts_of(entry, tensor))
            if tensor.requires_grad:
                tensor.register_hook(partial(self._came, call))  # type: ignore[no-untyped-call]
        self._ended.append(call)
        self._modules[id(call)] = module

    def _came(self, call: Call, gradient: Tensor) -> None:
        call.into.append(facts_of("gradient of its output", gradient))

    def _gave(self, call: Call, gradient: Tensor) -> None:
        self._moment += 1
        call.gives(facts_of("gradient of its input", gradient), self._moment)

    def _weight(self, owner: str, name: str, gradient: Tensor) -> None:
        self._moment += 1
        facts = facts_of(f"gradient of {name}", gradient)
        for call in self._begun:
            if call.name == owner:
                call.gives(facts, self._moment, to_weight=True)

    def origin(self, losses: Sequence[Tensor]) -> NonFiniteOrigin | None:
        """Return what first produced NaN or infinity, None if everything was finite."""
        found = first_of(self._begun, self._ended, [facts_of("loss", loss) for loss in losses])
        owner = next((call for call in self._ended if found is not None and call.name == found.name), None)
        if found is None or owner is None:
            return found
        weights = self._modules[id(owner)].named_parameters(recurse=False)
        return replace(found, weights=[facts_of(name, weight) for name, weight in weights])
