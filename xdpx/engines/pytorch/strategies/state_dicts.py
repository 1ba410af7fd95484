"""Methods that strategies share, for weights and optimizer states, whole or sharded, and defaults for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.precision import Precision
from xdpx.engines.pytorch.strategies import shard_files
from xdpx.engines.pytorch.strategies.base import Result
from xdpx.engines.pytorch.strategies.states import fill_optimizer, fill_weights, whole_optimizer_state, whole_weights
from xdpx.engines.pytorch.world import World
from xdpx.utils.distributed_utils import any_process


class HandsOver:
    """Base class of strategies: saving and loading of weights and optimizer states, and defaults for other methods."""

    world: World
    writes_own_state: bool = False
    passes_alone: bool = False
    precision: Precision | None = None
    _facts: tuple[str, ...] = ()  # the names that all processes know

    @property
    def mean_over(self) -> int:
        """The number of processes: the backward pass averages gradients over them; see `Strategy`."""
        return self.world.size

    def through(self, model: nn.Module, work: Callable[[], Result]) -> Result:
        """Return the result of `work`: weights are always whole; see `Strategy.through`."""
        del model
        return work()

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Do nothing: the backward pass has exchanged the gradients; see `Strategy.sum_gradients`."""
        del parameters

    def sum_facts(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sums over processes, in a single exchange, under the names of all; see `Strategy.sum_facts`."""
        if self.world.size == 1:
            return dict(facts)
        if any_process(not facts.keys() <= {*self._facts}):
            self._facts = tuple(dict.fromkeys(chain(self._facts, *collectives.gather_objects([*facts]))))
        found = (facts.get(name, 0.0) for name in self._facts)
        values = [torch.as_tensor(each, dtype=torch.float64, device=self.world.device).reshape(()) for each in found]
        return dict(zip(self._facts, collectives.sum_over_ranks(torch.stack(values).detach()).unbind(), strict=True))

    def begin(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Do nothing: no preparation is needed; see `Strategy.begin`."""
        del model, optimizer

    def after_step(self, optimizer: Optimizer, number: int) -> None:
        """Do nothing: all processes have taken the same step; see `Strategy.after_step`."""
        del optimizer, number

    def meet(self, optimizer: Optimizer, number: int) -> None:
        """Do nothing: all processes already have the same weights; see `Strategy.meet`."""
        del optimizer, number

    def state_dict(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return {}; see `Strategy.state_dict`."""
        del optimizer
        return {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Do nothing; see `Strategy.load_state_dict`."""
        del saved

    def join(self, model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Any]:
        """Return the prepared model and its optimizer unchanged; see `Strategy.join`."""
        return model, optimizer

    def weights(self, model: nn.Module, *, wanted: bool | None = None, copied: bool = False) -> dict[str, Tensor]:
        """Return all weights on the host; see `Strategy.weights`."""
        return whole_weights(unwrapped(model), wanted=self._wanted(wanted), copied=copied)

    def load_weights(
        self, model: nn.Module, weights: Mapping[str, Tensor], *, strict: bool = False
    ) -> tuple[list[str], list[str]]:
        """Load weights into the model; see `Strategy.load_weights`."""
        return fill_weights(unwrapped(model), weights, strict=strict, alone=self.world.size == 1)

    def optimizer_state(
        self, model: nn.Module, optimizer: Optimizer, *, wanted: bool | None = None, copied: bool = False
    ) -> dict[str, Any]:
        """Return the optimizer's state on the host; see `Strategy.optimizer_state`."""
        del model
        return whole_optimizer_state(optimizer, wanted=self._wanted(wanted), copied=copied)

    def load_optimizer_state(self, model: nn.Module, optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
        """Load an optimizer's state; see `Strategy.load_optimizer_state`."""
        del model
        fill_optimizer(optimizer, saved)

    def sharded_save(self, folder: str, model: nn.Module, optimizer: Optimizer | None = None) -> None:
        """Write weights and optimizer state as shards; see `strategies.shard_files`."""
        shard_files.save(folder, unwrapped(model), optimizer)

    def sharded_load(self, folder: str, model: nn.Module | None = None, optimizer: Optimizer | None = None) -> None:
        """Load what `sharded_save` wrote; see `strategies.shard_files`."""
        shard_files.load(folder, None if model is None else unwrapped(model), optimizer)

    def _wanted(self, wanted: bool | None) -> bool:
        return self.world.is_main if wanted is None else wanted


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside DDP, DataParallel and torch.compile wrappers, in any order."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, DistributedDataParallel | nn.DataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner
