"""Paths of a stack's blocks in the tree of weights: unrolled, stacked by a scan, by stages, or both."""

from __future__ import annotations

from dataclasses import dataclass

from xdpx.config.hparams import BaseHParams
from xdpx.models.spmd.exchange.maps import LAYER
from xdpx.models.spmd.layers.stacks import set_num_layers


@dataclass(frozen=True)
class BlockPaths:
    """Paths of blocks.

    Attributes:
        path: of a block, below its stack; `{layer}` stands for its number if blocks are separate.
        stacked: leading dims of every weight if blocks are stacked; empty if they are separate.
    """

    path: str
    stacked: tuple[int, ...] = ()


def layout_in(network: BaseHParams) -> BlockPaths:
    """Return the layout of the blocks in a template with `stacked_transformer_tpl` and `num_layers`."""
    stack = network.stacked_transformer_tpl.clone()
    if network.num_layers:
        set_num_layers(stack, network.num_layers)
    return layout_of(stack)


def layout_of(stack: BaseHParams) -> BlockPaths:
    """Return the layout of the blocks in a template of a stack.

    Raises:
        ValueError: blocks are unrolled inside a scan or stages, so that one weight belongs to some layers only.
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
            "counterpart in other "
            "libraries. Repeat them instead: StackedTransformerRepeated.HParams(body=block, x_times=...)."
        )
    return BlockPaths(f"{name}/{inner.path}".rstrip("/"), (*stacked, *inner.stacked))
