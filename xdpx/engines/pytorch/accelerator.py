"""What scripts written for the original ask `trainer.accelerator` for, answered by our own parts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.precision import Precision
from xdpx.engines.pytorch.strategies import Strategy
from xdpx.engines.pytorch.world import World


class Accelerator:
    """A view; it decides nothing.

    Args:
        world: where this process stands.
        strategy: how training is spread.
        precision: in which numbers it computes.
        adopt: prepares a loader that a user made.
    """

    def __init__(self, world: World, strategy: Strategy, precision: Precision, adopt: Callable[[Any], Any]) -> None:
        self._world, self._strategy, self._precision, self._adopt = world, strategy, precision, adopt
        self.device, self.num_processes, self.process_index = world.device, world.size, world.rank
        self.local_process_index = world.local_rank
        self.is_main_process, self.is_local_main_process = world.is_main, world.is_local_main
        self.sync_gradients = True
        self.mixed_precision = precision.mode

    def prepare(self, *things: Any) -> Any:
        """Prepare models and loaders; anything else is given back as it is."""
        done = tuple(self._prepared(thing) for thing in things)
        return done[0] if len(done) == 1 else done

    def _prepared(self, thing: Any) -> Any:
        if isinstance(thing, nn.Module):
            return self.prepare_model(thing)
        return self._adopt(thing) if isinstance(thing, torch.utils.data.DataLoader) else thing

    def prepare_model(self, model: nn.Module, evaluation_mode: bool = False, **_: Any) -> nn.Module:
        """Give a model on the device, spread over processes unless it is to be evaluated only."""
        self._precision.attach(model)
        return model.to(self.device) if evaluation_mode else self._strategy.prepare(model)

    def unwrap_model(self, model: nn.Module, *_: Any, **__: Any) -> nn.Module:
        """Give the model that the user made."""
        return self._strategy.unwrap(model)

    def backward(self, loss: Tensor, **_: Any) -> None:
        """Add the gradients of a loss."""
        self._precision.backward(loss)

    def clip_grad_norm_(self, parameters: Any, max_norm: float, *_: Any) -> Tensor:
        """Scale gradients down to a norm, and give the norm they had."""
        return self._strategy.clip(list(parameters), max_norm)

    def no_sync(self, model: nn.Module) -> AbstractContextManager[Any]:
        """Give a context in which gradients are not exchanged."""
        return self._strategy.accumulating(model, last=False)

    def autocast(self) -> AbstractContextManager[Any]:
        """Give the context of mixed precision."""
        return self._precision.autocast()

    def gather(self, tensors: Any) -> Any:
        """Put the rows of all processes together."""
        return collectives.gather_rows(tensors)

    def gather_for_metrics(self, tensors: Any, use_gather_object: bool = False) -> Any:
        """Put the rows of all processes together."""
        return collectives.gather_objects(tensors) if use_gather_object else collectives.gather_rows(tensors)

    def pad_across_processes(self, tensors: Any, *_: Any, **__: Any) -> Any:
        """Give the tensors themselves: gathering pads."""
        return tensors

    def reduce(self, tensor: Tensor, reduction: str = "sum", scale: float = 1.0) -> Tensor:
        """Give the sum or the mean over all processes, times `scale`."""
        over = collectives.mean_over_ranks if reduction == "mean" else collectives.sum_over_ranks
        return over(tensor) * scale

    def wait_for_everyone(self) -> None:
        """Wait until all processes are here."""
        collectives.barrier()

    def print(self, *words: Any, **options: Any) -> None:
        """Print on the first process."""
        if self.is_main_process:
            print(*words, **options)  # noqa: T201 - it is what scripts call to print

    def get_state_dict(self, model: nn.Module, **_: Any) -> dict[str, Tensor]:
        """Give all weights on the host of the first process."""
        return self._strategy.weights(model)
