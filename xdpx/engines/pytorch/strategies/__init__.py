"""Strategies that distribute training over processes; `choose` picks one."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from xdpx.engines.pytorch.strategies.base import DdpOptions, FsdpLike, Strategy
from xdpx.engines.pytorch.strategies.whole import DataParallel, Distributed, Replicated, Single
from xdpx.engines.pytorch.world import World

if TYPE_CHECKING:
    from xdpx.engines.pytorch.strategies.sharded import Sharded

__all__ = [
    "DataParallel",
    "DdpOptions",
    "Distributed",
    "FsdpLike",
    "Replicated",
    "Sharded",
    "Single",
    "Strategy",
    "choose",
]

KINDS = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")


def __getattr__(name: str) -> Any:
    if name == "Sharded":  # imports parts of torch that take seconds, and few need it
        from xdpx.engines.pytorch.strategies.sharded import Sharded

        return Sharded
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def choose(
    world: World,
    *,
    fsdp: FsdpLike | None = None,
    ddp: DdpOptions | None = None,
    precision: str = "no",
    deepspeed: Any = None,
    place: bool = True,
) -> Strategy:
    """Return the strategy that fits the launch and the arguments. On all processes.

    Args:
        world: the place of this process.
        fsdp: what is sharded; None shards nothing.
        ddp: how gradients are averaged when nothing is sharded.
        precision: "no", "bf16" or "fp16".
        deepspeed: returns the config of DeepSpeed, see `strategies.zero`; None does not use DeepSpeed.
        place: whether models are moved to the device; shards always are.

    Raises:
        ValueError: sharding is requested without a launcher, of an unknown kind, or both as fsdp and deepspeed.
        ImportError: a requested library is not installed.
    """
    if deepspeed is not None:
        return _by_deepspeed(world, fsdp, deepspeed)
    if fsdp is not None:
        return _sharding(world, fsdp, ddp, precision, place=place)
    if world.size > 1:
        return Distributed(world, ddp, place=place)
    return DataParallel(world, place=place) if world.num_gpus > 1 else Single(world, place=place)


def _sharding(world: World, fsdp: FsdpLike, ddp: DdpOptions | None, precision: str, *, place: bool) -> Strategy:
    if getattr(fsdp, "xla", False):
        raise ImportError(
            "fsdp_config: xla is true, but torch_xla, which it needs, is not installed. Leave xla out: "
            "full_shard needs nothing but torch."
        )
    if fsdp.strategy not in KINDS:
        raise ValueError(f"fsdp: is '{fsdp.strategy}'. Use one of {', '.join(KINDS)}.")
    if world.mode != "distributed":
        raise ValueError(
            f"fsdp: is '{fsdp.strategy}', but this process was started alone, so there is nothing to share with. Start "
            "the script by `torchrun --nproc_per_node <processes>` or `accelerate launch`, or leave fsdp out."
        )
    if fsdp.strategy == "no_shard" and not fsdp.offload and not fsdp.activation_checkpointing:
        return Distributed(world, ddp, place=place)
    from xdpx.engines.pytorch.strategies.sharded import Sharded

    return Sharded(world, fsdp, precision)


def _by_deepspeed(world: World, fsdp: FsdpLike | None, config_of: Callable[..., Any]) -> Strategy:
    if fsdp is not None:
        raise ValueError("deepspeed: is given together with fsdp; both shard the model. Leave one of them out.")
    if importlib.util.find_spec("deepspeed") is None:
        raise ImportError(
            "deepspeed: is not installed: pip install deepspeed. What its ZeRO stages do is there without it: stage 3 "
            "is fsdp='full_shard auto_wrap', stage 2 is fsdp='shard_grad_op auto_wrap', and offloading to the host "
            "adds the word offload."
        )
    from xdpx.engines.pytorch.strategies.zero import Zero

    return Zero(world, config_of)
