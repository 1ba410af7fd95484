"""Where the blocks of a stack lie in the tree of its weights: unrolled, stacked by a scan, by stages, or both."""

from __future__ import annotations

from dataclasses import dataclass

from xdpx.config.hparams import BaseHParams
from xdpx.models.spmd.exchange.maps import LAYER
from xdpx.models.spmd.layers.stacks import set_num_layers


@dataclass(frozen=True)
class BlockPaths:
    """Paths of blocks.

    Attributes:
        path: of a block, below its stack; `{layer}` stands for its number where blocks are apart.
        stacked: leading dims of every weight where all blocks lie in one; empty where they are apart.
    """

    path: str
    stacked: tuple[int, ...] = ()


def layout_in(network: BaseHParams) -> BlockPaths:
    """Tell how the template of a network with `stacked_transformer_tpl` and `num_layers` lays out its blocks."""
    stack = network.stacked_transformer_tpl.clone()
    if network.num_layers:
        set_num_layers(stack, network.num_layers)
    return layout_of(stack)


def layout_of(stack: BaseHParams) -> BlockPaths:
    """Tell how a template of a stack lays out its blocks.

    Raises:
        ValueError: stages are unrolled inside, so that one weight here belongs to some layers only.
    """
    fields = stack._field_table
    if "x_times" in fields:
        return _within("sub", (stack.x_times,), stack.body)
    if "num_stages" in fields:
        rounds = (stack.circular_repeat,) if stack.circular_repeat > 1 else ()
        return _within("sub", (*rounds, stack.num_stages), stack.body)
    return BlockPaths(f"x_layers_{LAYER}") if "layer_tpl" in fields else BlockPaths("")


def _within(name: str, stacked: tuple[int, ...], body: BaseHParams) -> BlockPaths:
    inner = layout_of(body)
    if LAYER in inner.path:
        raise ValueError(
            f"{type(body).__qualname__}: blocks that are unrolled inside a repeated or pipelined stack have no "
            "counterpart elsewhere. Repeat them instead: StackedTransformerRepeated.HParams(body=block, x_times=...)."
        )
    return BlockPaths(f"{name}/{inner.path}".rstrip("/"), (*stacked, *inner.stacked))
