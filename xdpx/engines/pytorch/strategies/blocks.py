"""The strategy in which processes train independently for a block of updates, then filter the result into one model.

P: all trained parameters, flattened and concatenated.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from xdpx.config.faults import refusal
from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.averaging import keeps_average
from xdpx.engines.pytorch.collectives import TensorSlot
from xdpx.engines.pytorch.strategies.states import parameters_of
from xdpx.engines.pytorch.strategies.whole import Replicated
from xdpx.engines.pytorch.world import World


@dataclass(frozen=True)
class BlockOptions:
    """How blocks of local training are filtered into the global model.

    Attributes:
        learning_rate: of a block, in (0, 1]; 1 with momentum 0 is plain model averaging.
        momentum: of blocks, in [0, 1).
        interval: updates per block.
        warmup: update at which all processes continue from the weights of the first; before it nothing is filtered.
        nesterov: whether the next block starts one momentum step ahead (Nesterov block momentum).
        averages_optimizer: whether the processes' optimizer states are averaged at the end of the warm-up and when a
            state is saved. Otherwise they are reset at the end of the warm-up, and replaced by that of the first
            process when a state is saved.
    """

    learning_rate: float = 1.0
    momentum: float = 0.875
    interval: int = 50
    warmup: int = 500
    nesterov: bool = False
    averages_optimizer: bool = False


def block_update(
    local_P: Tensor, global_P: Tensor, velocity_P: Tensor, *, options: BlockOptions
) -> tuple[Tensor, Tensor]:
    """Filter one block of local training into the global model (BMUF).

    Args:
        local_P: float32 parameters after the block, averaged over processes.
        global_P: parameters that the block began with.
        velocity_P: the filtered change of the previous blocks.
        options: learning rate and momentum of blocks.

    Returns:
        (new global_P, from which every process continues, new velocity_P).

    Source: Chen and Huo, "Scalable training of deep learning machines by incremental block training with intra-block
    parallel optimization and blockwise model-update filtering", ICASSP 2016, equations 5 to 8.
    """
    velocity_P = options.momentum * velocity_P + options.learning_rate * (global_P - local_P)
    ahead = 1.0 + options.momentum if options.nesterov else 1.0
    return global_P - ahead * velocity_P, velocity_P


class Blocks(Replicated):
    """Every process has the model and a part of each batch, and takes updates independently (BMUF).

    Processes synchronise every `interval` updates, and before scoring and saving: then they all have one model again.
    """

    def __init__(self, world: World, options: BlockOptions) -> None:
        super().__init__(world)
        self.options = options
        self._velocity_P = torch.zeros(0)
        self._global_P = torch.zeros(0)
        self._new_optimizer: dict[str, Any] = {}
        self._since = 0  # updates since processes last synchronised

    @property
    def mean_over(self) -> int:
        """The number of processes: gradients are those of one process's part of the batch, counts those of all."""
        return self.world.size

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Do nothing: each process follows its own gradient."""
        del parameters

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the norm of this process's gradients, NaN if those of another one are NaN or infinite.

        So all processes leave the same update out, halve the loss scale, or end.
        """
        norm = super().norm(gradients)
        any_broken = collectives.sum_over_ranks(1.0 - norm.isfinite().float()) > 0
        return torch.where(any_broken & norm.isfinite(), torch.nan, norm)

    def begin(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Store the weights that the first block begins with.

        Raises:
            ConfigError: the optimizer averages weights itself, and would not see the filtering.
        """
        if keeps_average(optimizer):
            problem = f"is true, but {type(optimizer).__name__} averages weights by itself, without blocks."
            raise refusal("use_bmuf", problem, "Leave it out, or use another optimizer.")
        super().begin(model, optimizer)
        self._global_P = _flat(optimizer)
        self._velocity_P = torch.zeros_like(self._global_P)
        self._new_optimizer = copy.deepcopy(optimizer.state_dict())
        self._since = 0

    @torch.no_grad()
    def after_step(self, optimizer: Optimizer, number: int) -> None:
        """Synchronise if update `number` is the last of a block or of the warm-up."""
        self._since += 1
        warmup = self.options.warmup
        if number == warmup or (number > warmup and number % self.options.interval == 0):
            self.meet(optimizer, number)
        if number == warmup:
            self._share_optimizer(optimizer, otherwise=self._new_optimizer)

    @torch.no_grad()
    def meet(self, optimizer: Optimizer, number: int) -> None:
        """Combine the models of all processes into one after update `number`, unless that was just done.

        Its buffers are those of the first process.
        """
        if not self._since:
            return
        self._since = 0
        local_P = _flat(optimizer)
        if number <= self.options.warmup:
            self._global_P = collectives.broadcast_tensor_(local_P)
        else:
            self._global_P, self._velocity_P = block_update(
                collectives.mean_over_ranks(local_P), self._global_P, self._velocity_P, options=self.options
            )
        weights = parameters_of(optimizer)
        parts = torch.split(self._global_P, [weight.numel() for weight in weights])
        torch._foreach_copy_(weights, [part.view_as(each) for part, each in zip(parts, weights, strict=True)])
        if self._buffers is not None:
            self._buffers.share()

    def state_dict(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the velocity, and make all processes continue from one optimizer state."""
        self._share_optimizer(optimizer, otherwise=None)
        return {"velocity": self._velocity_P}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self._velocity_P = saved["velocity"].to(self._global_P)

    def _share_optimizer(self, optimizer: Optimizer, *, otherwise: dict[str, Any] | None) -> None:
        """Average optimizer states if configured; otherwise load `otherwise`, or the first process's state if None."""
        own = optimizer.state_dict()
        if self.options.averages_optimizer:
            shared = {**own, "state": mean_of_states(own["state"])}
        else:
            shared = copy.deepcopy(otherwise) if otherwise is not None else collectives.broadcast_tree(own)
        optimizer.load_state_dict(shared)


def _flat(optimizer: Optimizer) -> Tensor:
    return torch.cat([weight.detach().reshape(-1) for weight in parameters_of(optimizer)])


def mean_of_states(own: Mapping[int, Any]) -> dict[int, Any]:
    """Return the means of optimizer states, by index of the weight, over the processes that have one. On all processes.

    A process has none of a weight that its loss has not depended on so far. What has no mean, such as a whole number,
    is that of the first of them.
    """
    flat = {index: collectives.flatten(state) for index, state in own.items()}
    outlines = collectives.gather_objects({index: outline for index, (outline, _) in flat.items()})

    def mean(slot: TensorSlot, index: int, ranks: list[int]) -> Tensor:
        counted = ranks if slot.dtype.is_floating_point else ranks[:1]
        value = torch.zeros(slot.shape, dtype=slot.dtype)
        if collectives.rank() in counted:
            value = flat[index][1][slot.index].cpu()
        total = collectives.sum_over_ranks(value)
        return total / len(counted) if slot.dtype.is_floating_point else total

    found = {}
    for index in sorted(set().union(*outlines)):
        ranks = [rank for rank, each in enumerate(outlines) if index in each]
        outline = outlines[ranks[0]][index]
        found[index] = collectives.unflatten(outline, partial(mean, index=index, ranks=ranks))
    return found
