"""The interface of strategies that distribute training. Code outside does not depend on which strategy it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from xdpx.engines.pytorch.precision import Precision
from xdpx.engines.pytorch.world import World

Result = TypeVar("Result")
Missing = list[str]
Unexpected = list[str]


@dataclass(frozen=True)
class DdpOptions:
    """How `DistributedDataParallel` is set up; None leaves torch's own default.

    Attributes:
        find_unused_parameters: whether each step looks for weights that the loss does not depend on. Needed if there
            are any; otherwise it only costs time.
        bucket_cap_mb: gradients are sent in buckets of this many megabytes.
        broadcast_buffers: whether buffers (such as running means) are made equal before each pass.
        static_graph: promises that the graph is the same at every step.
        after_passes: whether gradients are exchanged once, after the last pass of an update, and not during it: then
            a process that runs out of memory in a pass can tell the others, because they do not wait for it.
    """

    find_unused_parameters: bool | None = None
    bucket_cap_mb: int | None = None
    broadcast_buffers: bool | None = None
    static_graph: bool | None = None
    after_passes: bool = False


@dataclass(frozen=True)
class ShardOptions:
    """What x-train shards; implements `FsdpLike`.

    Attributes:
        reshard_after_forward: whether gathered weights are freed after the forward pass and gathered again for the
            backward pass (as in ZeRO stage 3); otherwise they are freed after the backward pass (stages 1 and 2).
    """

    reshard_after_forward: bool = True
    strategy: str = "full_shard"
    offload: bool = False
    wrap: str = "none"
    layer_classes: tuple[str, ...] = ()
    min_num_params: int = 0
    activation_checkpointing: bool = False
    state_dict_type: str = "FULL_STATE_DICT"
    ignored_modules: str | None = None


class FsdpLike(Protocol):
    """Options of the sharded strategy; implemented by `arguments.fsdp.FsdpOptions`."""

    @property
    def strategy(self) -> str:
        """full_shard, shard_grad_op, no_shard, hybrid_shard or hybrid_shard_zero2."""
        ...

    @property
    def offload(self) -> bool:
        """Whether weights, gradients and optimizer state are kept in host memory."""
        ...

    @property
    def wrap(self) -> str:
        """Which modules become units of their own: none, transformer (layers of certain classes) or size."""
        ...

    @property
    def layer_classes(self) -> Sequence[str]:
        """Class names for `wrap` transformer; empty for those that the model itself names."""
        ...

    @property
    def min_num_params(self) -> int:
        """For `wrap` size: the number of parameters from which a module becomes a unit."""
        ...

    @property
    def activation_checkpointing(self) -> bool:
        """Whether the units' activations are recomputed in the backward pass instead of kept."""
        ...

    @property
    def state_dict_type(self) -> str:
        """FULL_STATE_DICT or SHARDED_STATE_DICT: how checkpoints are written. Not used by the strategy."""
        ...

    @property
    def reshard_after_forward(self) -> bool:
        """Whether gathered weights are freed after the forward pass, and gathered again for the backward pass."""
        ...

    @property
    def ignored_modules(self) -> str | None:
        """Pattern of the names of modules that are not sharded."""
        ...


class Strategy(Protocol):
    """One way to distribute training. Every method is called on all processes, in the same order.

    Attributes:
        world: the place of this process.
        shards: whether `prepare` replaces the parameters, so that optimizers must be made after it; evaluation must
            then run the same number of passes on all processes (`synced_gpus` of `generate`).
        writes_own_state: whether only `sharded_save` can write the optimizer's state.
        passes_alone: whether a process runs forward and backward without waiting for the others.
        precision: a `Precision` of the strategy's own, for types, loss scale and steps; None: that of the arguments.
        mean_over: factor between the sum of gradients over processes and the gradients as they stand after the
            exchange: the number of processes if these are averages, 1 if they are sums.
    """

    world: World
    shards: bool
    writes_own_state: bool
    passes_alone: bool
    precision: Precision | None

    @property
    def mean_over(self) -> int:
        """See the attributes of the class."""
        ...

    def join(self, model: nn.Module, optimizer: Any) -> tuple[nn.Module, Any]:
        """Return the model and the optimizer to train with, from a prepared model and the optimizer made for it."""
        ...

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return the model to call for training, on its device, with the first process's weights on all processes."""
        ...

    def unwrap(self, model: nn.Module) -> nn.Module:
        """Return the model that the user made; a model that was not prepared is returned as it is."""
        ...

    def through(self, model: nn.Module, work: Callable[[], Result]) -> Result:
        """Return the result of `work`, which runs a forward pass through a prepared model, or through any of its parts.

        Meanwhile the weights are not sharded, except in parts that are always called as modules (`units`). A backward
        pass must follow, unless `work` returns None or gradients are disabled.
        """
        ...

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Return the context for the forward and backward pass of one micro-batch.

        Args:
            model: the prepared model.
            last: whether it is the last before the update; until then processes need not exchange gradients.
        """
        ...

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Exchange gradients between processes after the last micro-batch, if the backward pass has not done so.

        After `begin`, buffers that the passes have changed also become those of the first process.
        """
        ...

    def sum_facts(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sums over processes of each process's sums: plain numbers, or tensors with one element.

        A process may lack some, where it has had no batch of their kind.
        """
        ...

    def begin(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Prepare for training a prepared model from its present weights, with a new optimizer."""
        ...

    def after_step(self, optimizer: Optimizer, number: int) -> None:
        """Do the communication that the strategy needs after the step of update `number`."""
        ...

    def meet(self, optimizer: Optimizer, number: int) -> None:
        """Make the weights equal on all processes after update `number`, before they are scored or saved."""
        ...

    def state_dict(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the state to save beside weights and optimizer; may make optimizer states equal on all processes."""
        ...

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned; after `begin`."""
        ...

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the Euclidean norm of gradients, over all processes' shards, on the device.

        Args:
            gradients: at least one on each process; of one type, on one device.
        """
        ...

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> Tensor:
        """Scale gradients down to a norm; return the norm they had, over all processes' shards.

        Args:
            parameters: pass a list; iterating over a model costs more than clipping.
            max_norm: 0 leaves the gradients as they are.

        Returns:
            The norm before clipping, a scalar on the device: nothing waits for it.
        """
        ...

    def weights(self, model: nn.Module, *, wanted: bool | None = None, copied: bool = False) -> dict[str, Tensor]:
        """Return all weights and buffers by name on the host of the first process, {} on the others.

        Args:
            model: prepared or not.
            wanted: whether this process gets them; with None only the first process does.
            copied: whether they must stay valid after the next step; otherwise they may share memory with the model.

        Names are those of the user's model; tied weights are one tensor.
        """
        ...

    def load_weights(
        self, model: nn.Module, weights: Mapping[str, Tensor], *, strict: bool = False
    ) -> tuple[Missing, Unexpected]:
        """Load weights into a model, prepared or not. If any process passes {}, all get those of the first process.

        Returns:
            The names of the model that are missing, and those it does not have; the same on all processes.

        Raises:
            OtherWeights: sizes differ, or with `strict` there are such names. The model is unchanged then.
        """
        ...

    def optimizer_state(
        self, model: nn.Module, optimizer: Optimizer, *, wanted: bool | None = None, copied: bool = False
    ) -> dict[str, Any]:
        """Return the optimizer's state on the host of the first process, {} on the others; arguments as in `weights`.

        It is the same as `optimizer.state_dict()` in one process, so any number of processes can continue from it.
        """
        ...

    def load_optimizer_state(self, model: nn.Module, optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
        """Load what `optimizer_state` returned, on any number of processes.

        Raises:
            ValueError: it belongs to another optimizer or model.
        """
        ...

    def sharded_save(self, folder: str, model: nn.Module, optimizer: Optimizer | None = None) -> None:
        """Write weights and optimizer state into a local folder that exists, every process its own shards.

        The files are safetensors; see `strategies.shard_files`.
        """
        ...

    def sharded_load(self, folder: str, model: nn.Module | None = None, optimizer: Optimizer | None = None) -> None:
        """Load what `sharded_save` wrote, on any number of processes; weights, optimizer state, or both.

        Raises:
            FileNotFoundError, RuntimeError, ValueError: it is missing, damaged, or of another model.
        """
        ...
