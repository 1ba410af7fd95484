"""What the Trainer asks of a way to spread training over processes. Nothing outside asks which way it is."""

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
        find_unused_parameters: whether each step looks for weights that the loss does not depend on. Needed where
            there are such, and otherwise only slower.
        bucket_cap_mb: gradients are sent in pieces of so many megabytes.
        broadcast_buffers: whether buffers (such as running means) are made equal before each pass.
        static_graph: promises that the graph is the same at every step.
        after_passes: whether gradients are exchanged once, after the last pass of an update, and not during it: so a
            process that runs out of memory in a pass can tell the others, which do not wait for it.
    """

    find_unused_parameters: bool | None = None
    bucket_cap_mb: int | None = None
    broadcast_buffers: bool | None = None
    static_graph: bool | None = None
    after_passes: bool = False


@dataclass(frozen=True)
class ShardOptions:
    """What x-train shares out; implements `FsdpLike`.

    Attributes:
        reshard_after_forward: whether gathered weights are let go after the forward pass (as ZeRO stage 3 does), and
            gathered again for the backward pass; else they are let go after that (stages 1 and 2).
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
    """What the sharded strategy needs to know; `arguments.fsdp.FsdpOptions` is one."""

    @property
    def strategy(self) -> str:
        """full_shard, shard_grad_op, no_shard, hybrid_shard or hybrid_shard_zero2."""
        ...

    @property
    def offload(self) -> bool:
        """Whether weights, gradients and optimizer state wait in host memory."""
        ...

    @property
    def wrap(self) -> str:
        """What becomes a unit of its own: none, transformer (layers of some classes) or size."""
        ...

    @property
    def layer_classes(self) -> Sequence[str]:
        """Class names for `auto_wrap` transformer; empty for what the model itself says."""
        ...

    @property
    def min_num_params(self) -> int:
        """For `wrap` size: from so many parameters on, a module becomes a unit."""
        ...

    @property
    def activation_checkpointing(self) -> bool:
        """Whether the units' activations are computed again in the backward pass instead of kept."""
        ...

    @property
    def state_dict_type(self) -> str:
        """FULL_STATE_DICT or SHARDED_STATE_DICT: how checkpoints are written. Decides nothing here."""
        ...

    @property
    def reshard_after_forward(self) -> bool:
        """Whether gathered weights are let go after the forward pass, and gathered again for the backward pass."""
        ...

    @property
    def ignored_modules(self) -> str | None:
        """Pattern of the names of modules that every process keeps whole."""
        ...


class Strategy(Protocol):
    """One way to spread training. Every verb is called on all processes, in the same order.

    Attributes:
        world: where this process stands.
        shards: whether `prepare` replaces the parameters, so that optimizers must be made after it; evaluation must
            then run the same number of passes on all processes (`synced_gpus` of `generate`).
        writes_own_state: whether the optimizer's state is written by `sharded_save` alone.
        passes_alone: whether a process goes forward and backward without waiting for the others.
        precision: what takes numbers, loss scale and steps upon itself; None leaves them to the arguments.
        mean_over: by how many processes the backward pass divides gradients while it exchanges them; 1 where it does
            not, or where gradients are sums over processes.
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
        """Return the model and the optimizer that are trained, from a prepared model and the optimizer made for it."""
        ...

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return the model that is called for training, on its device. All processes start from the first's weights."""
        ...

    def unwrap(self, model: nn.Module) -> nn.Module:
        """Return the model that the user made; what was not prepared is given back as it is."""
        ...

    def through(self, model: nn.Module, work: Callable[[], Result]) -> Result:
        """Return what `work` gives, which goes forward through a prepared model: all of it, or parts of its own choice.

        Its weights are whole meanwhile, except those of parts that are always called as modules (`units`). A backward
        pass follows, unless `work` gives None or gradients are switched off.
        """
        ...

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Return the context for the forward and backward pass of one micro-batch.

        Args:
            model: the prepared model.
            last: whether the update follows; before, processes need not exchange gradients.
        """
        ...

    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Sum the gradients over processes, after the last micro-batch, where the backward pass has not done so."""
        ...

    def sum_facts(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sums over processes of numbers that are sums on each: tensors without dimensions, or plain."""
        ...

    def begin(self, optimizer: Optimizer) -> None:
        """Prepare, with an optimizer that is new, and weights that are where the training begins or goes on."""
        ...

    def after_step(self, optimizer: Optimizer, number: int) -> None:
        """Exchange what processes exchange after the step of update `number`."""
        ...

    def meet(self, optimizer: Optimizer, number: int) -> None:
        """Make sure that all processes have the same weights, after update `number`: they are scored or saved now."""
        ...

    def state_dict(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return what must be saved beside weights and optimizer, which are those of the first process afterwards."""
        ...

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave; after `begin`."""
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
            parameters: hand in a list; walking through a model costs more than clipping does.
            max_norm: 0 leaves the gradients as they are.

        Returns:
            The norm before, without dimensions, on the device: nothing waits for it.
        """
        ...

    def weights(self, model: nn.Module, *, wanted: bool | None = None, copied: bool = False) -> dict[str, Tensor]:
        """Return all weights and buffers by name on the host of the first process, {} on the others.

        Args:
            model: prepared or not.
            wanted: whether this process is given them; None is the first process alone.
            copied: whether they outlive the next step; else they may share memory with the model.

        Names are those of the user's model; tied weights are one tensor.
        """
        ...

    def load_weights(
        self, model: nn.Module, weights: Mapping[str, Tensor], *, strict: bool = False
    ) -> tuple[Missing, Unexpected]:
        """Fill a model, prepared or not. What the first process brings goes to the others that bring {}.

        Returns:
            The names that were not given, and those that the model does not have; the same on all processes.

        Raises:
            OtherWeights: sizes differ; or there are such names, and `strict`. Nothing was changed then.
        """
        ...

    def optimizer_state(
        self, model: nn.Module, optimizer: Optimizer, *, wanted: bool | None = None, copied: bool = False
    ) -> dict[str, Any]:
        """Return the optimizer's state on the host of the first process, {} on the others; arguments as of `weights`.

        It is what `optimizer.state_dict()` gives in one process, so that any number of processes can go on from it.
        """
        ...

    def load_optimizer_state(self, model: nn.Module, optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
        """Take over what `optimizer_state` gave, to whatever number of processes.

        Raises:
            ValueError: it is the state of another optimizer or model.
        """
        ...

    def sharded_save(self, folder: str, model: nn.Module, optimizer: Optimizer | None = None) -> None:
        """Write weights and optimizer state into a local folder that exists, every process its own shards.

        The files are safetensors; see `strategies.shard_files`.
        """
        ...

    def sharded_load(self, folder: str, model: nn.Module | None = None, optimizer: Optimizer | None = None) -> None:
        """Take over what `sharded_save` wrote, by whatever number of processes; weights, optimizer state, or both.

        Raises:
            FileNotFoundError, RuntimeError, ValueError: it is not there, damaged, or of another model.
        """
        ...
