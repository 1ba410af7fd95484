"""The strategy that uses DeepSpeed (ZeRO stages 0 to 3), if its package is installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.precision import Precision, in_float32, in_type
from xdpx.engines.pytorch.strategies.shard_files import OPTIMIZER
from xdpx.engines.pytorch.strategies.state_dicts import HandsOver, unwrapped
from xdpx.engines.pytorch.strategies.states import fill_weights
from xdpx.engines.pytorch.strategies.whole import NOTHING
from xdpx.engines.pytorch.world import World, join_alone
from xdpx.logger import log

OURS = ("adam", "adamw")
"""Optimizers that a DeepSpeed config may name; the one from the arguments is used in their place."""

ConfigOf = Callable[..., Mapping[str, Any] | None]
"""Returns the config with "auto" filled in; takes `hidden_size`."""


class Zero(HandsOver):
    """Implements `strategies.base.Strategy` on an engine of DeepSpeed. On all processes.

    `backward` of the last micro-batch of an update lets the engine average gradients, clip and step; later calls such
    as `clip` only report what it did.

    Args:
        world: the place of this process.
        config_of: returns the config.

    Raises:
        ValueError: the config names an optimizer other than Adam or AdamW.
    """

    shards: bool = True
    writes_own_state: bool = True

    def __init__(self, world: World, config_of: ConfigOf) -> None:
        self.world = world
        self.config_of = config_of
        self.engine: Any = None
        self._last, self._norm = True, torch.zeros(())
        if world.device.type == "cpu":
            os.environ.setdefault("DS_ACCELERATOR", "cpu")  # DeepSpeed reads it when it is imported
        if not torch.distributed.is_initialized():
            join_alone(world.device)
        config = dict(config_of() or {})
        kind = str(config.get("optimizer", {}).get("type", OURS[0]))
        if kind.lower() not in OURS:
            raise ValueError(
                f"deepspeed: its config names the optimizer '{kind}'. Use AdamW there, or leave the section out and "
                "name an optimizer in the argument optim."
            )
        if "scheduler" in config:
            log.warning("deepspeed: the section 'scheduler' is ignored; lr_scheduler_type and warmup_steps decide.")
        half = [name for name in ("bf16", "fp16") if config.get(name, {}).get("enabled") is True]
        self._dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[half[0]] if half else None
        self.precision = ZeroPrecision(self)

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return the engine if `join` has made one for this model, otherwise the model, on the device."""
        if self.engine is not None and unwrapped(model) is self.engine.module:
            return self.engine  # type: ignore[no-any-return]
        return model.to(self.world.device)

    def join(self, model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Any]:
        """Return the engine around a model and its optimizer, and the engine's optimizer, which wraps that one."""
        if self.engine is not None and optimizer is self.engine.optimizer:
            return self.engine, optimizer
        deepspeed = _package()
        deepspeed.init_distributed(auto_mpi_discovery=False)
        for tensor in (*model.parameters(), *model.buffers()):
            collectives.broadcast_tensor_(tensor.detach())
        with _without_empty_step(optimizer):
            self.engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=self._config(model))
        if self._dtype is not None:
            self.engine.register_forward_pre_hook(self._cast, with_kwargs=True)
            self.engine.register_forward_hook(lambda _, __, outputs: in_float32(outputs))
        return self.engine, self.engine.optimizer

    def unwrap(self, model: nn.Module) -> nn.Module:
        """Return the model that the user made."""
        inner: Any = self.engine.module if model is self.engine else model
        return unwrapped(inner)

    def accumulating(self, model: nn.Module, last: bool) -> AbstractContextManager[Any]:
        """Tell the engine whether the update follows."""
        self._last = last
        called: Any = model
        if called is self.engine:
            called.set_gradient_accumulation_boundary(last)
        return NOTHING

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the norm of the gradient as the engine reported it; only the engine knows the shards."""
        del gradients
        return self._norm

    def clip(self, parameters: Iterable[Tensor], max_norm: float) -> Tensor:
        """Return the norm of the gradient before the engine clipped it; the engine has also taken the step."""
        del parameters, max_norm
        return self._norm

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Add the gradients of a micro-batch; on the last one, also take the step."""
        engine = self.engine
        engine.backward(loss, scale_wrt_gas=False, **options)
        if not self._last:
            return
        whole = engine.zero_optimization_stage() == 0 and self._dtype is None
        if whole:  # here the engine does not report the norm
            gradients = [each.grad for each in engine.module.parameters() if each.grad is not None]
            self._norm = nn.utils.get_total_norm(gradients)
        engine.step()
        if not whole:
            self._norm = torch.as_tensor(engine.get_global_grad_norm() or 0.0)

    def weights(self, model: nn.Module, *, wanted: bool | None = None, copied: bool = False) -> dict[str, Tensor]:
        """Return all weights on the host; see `Strategy.weights`."""
        with self._gathered(model):
            return super().weights(self.unwrap(model), wanted=wanted, copied=copied)

    def load_weights(
        self, model: nn.Module, weights: Mapping[str, Tensor], *, strict: bool = False
    ) -> tuple[list[str], list[str]]:
        """Load weights into the model; see `Strategy.load_weights`."""
        with self._gathered(model, changes=True):
            return fill_weights(self.unwrap(model), weights, strict=strict)

    def sharded_save(self, folder: str, model: nn.Module, optimizer: Optimizer | None = None) -> None:
        """Write DeepSpeed's state in its own format, each process its part; only if an optimizer is given."""
        del model
        if optimizer is not None:
            self.engine.save_checkpoint(folder, tag=OPTIMIZER)

    def sharded_load(self, folder: str, model: nn.Module | None = None, optimizer: Optimizer | None = None) -> None:
        """Load what DeepSpeed wrote, by the same number of processes; only if an optimizer is given."""
        del model
        if optimizer is not None:
            self.engine.load_checkpoint(folder, tag=OPTIMIZER, load_lr_scheduler_states=False)

    def _config(self, model: nn.Module) -> dict[str, Any]:
        sizes = getattr(model, "config", None)
        hidden = getattr(sizes, "hidden_size", None) or max(getattr(sizes, "hidden_sizes", None) or [0])
        config = dict(self.config_of(hidden_size=hidden or None) or {})
        for section in ("optimizer", "scheduler"):  # the Trainer makes its own, from the arguments
            config.pop(section, None)
        zero = config.get("zero_optimization", {})
        config["zero_optimization"] = {name: value for name, value in zero.items() if value != "auto"}
        if not zero.get(
            "stage"
        ):  # there DeepSpeed divides the last update of an epoch, which may be short, as a full one
            config["gradient_accumulation_steps"] = 1
            config.pop("train_batch_size", None)
        return {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, **config}

    def _cast(self, _: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
        return in_type(args, self._dtype), in_type(kwargs, self._dtype)

    def _gathered(self, model: nn.Module, *, changes: bool = False) -> AbstractContextManager[Any]:
        """Return a context in which weights that stage 3 has sharded are whole."""
        cut = [each for each in self.unwrap(model).parameters() if hasattr(each, "ds_id")]
        if not cut:
            return nullcontext()
        writer = 0 if changes else None
        context: AbstractContextManager[Any] = _package().zero.GatheredParameters(cut, modifier_rank=writer)
        return context


@contextmanager
def _without_empty_step(optimizer: Any) -> Generator[None]:
    """Undo the effects of DeepSpeed's initial step with zero gradients (stage 0, half precision): decay and count."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    yield
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for state in optimizer.state.values():
        if "step" in state:  # used by Adam's bias correction
            state["step"] = state["step"] * 0


def _package() -> Any:
    """Return the package, imported late: it takes seconds to import and compiles on its first use."""
    import deepspeed

    return deepspeed


class ZeroPrecision(Precision):
    """Leaves types, loss scale and steps to the engine of a `Zero`."""

    def __init__(self, strategy: Zero) -> None:
        super().__init__("no", strategy.world.device)
        self._strategy = strategy

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Add the gradients of a loss; the engine takes the step with the last micro-batch."""
        self._strategy.backward(loss, **options)

    def step(self, optimizer: Optimizer, number: int) -> bool:
        """Return whether the engine skipped the step because gradients overflowed."""
        del optimizer, number
        self.skipped = not self._strategy.engine.was_step_applied()
        return self.skipped
