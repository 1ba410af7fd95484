"""Set the sizes of blocks in templates of stacks, repeated stacks and pipelines, at any nesting.

A stack is recognised by its fields: `x_times` repeats its `body`, `num_stages` pipelines it, `layer_tpl` has
`num_layers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdpx.config.faults import refusal
from xdpx.config.hparams import BaseHParams


def set_in_blocks(template: BaseHParams, sizes: Mapping[str, Any], *, causal: bool | None = None) -> None:
    """Set fields of every block in the template of a stack.

    Args:
        template: of a stack or of a single block; it is modified.
        sizes: values by field; fields that a block does not have are skipped.
        causal: for blocks that do not set it; None: unchanged.

    Raises:
        ConfigError: the stack is to be causal, and a block is not: it would see the tokens that it is to predict.
    """
    inner = _inner(template)
    for block in inner:
        set_in_blocks(block, sizes, causal=causal)
    if not inner:
        template.set(**{name: value for name, value in sizes.items() if name in template._field_table})
        if causal is not None and "causal" in template._field_table:
            if causal and template.causal is False:
                problem = "is False in a block of a causal model, whose tokens would see those that they predict."
                raise refusal("causal", problem, "Leave it out of the block's template, or set it to True.")
            template.causal = causal if template.causal is None else template.causal


def count_layers(template: BaseHParams) -> int:
    """Return the number of blocks that a token passes in a stack."""
    fields = template._field_table
    if "x_times" in fields:
        return int(template.x_times * count_layers(template.body))
    if "num_stages" in fields:
        return int(template.num_stages * template.circular_repeat * count_layers(template.body))
    return int(template.num_layers) if "layer_tpl" in fields else 1


def set_num_layers(template: BaseHParams, num_layers: int) -> None:
    """Set the number of blocks of a stack: by repetitions, or blocks per stage of a pipeline.

    Raises:
        ConfigError: the number is not a multiple of what the stack requires.
    """
    fields = template._field_table
    if "x_times" in fields:
        template.x_times = _divided(num_layers, count_layers(template.body), template)
    elif "num_stages" in fields:
        set_num_layers(template.body, _divided(num_layers, template.num_stages * template.circular_repeat, template))
    elif "layer_tpl" in fields:
        template.num_layers = num_layers
    else:
        _divided(1, num_layers, template)


def _inner(template: BaseHParams) -> list[Any]:
    fields = template._field_table
    name = "body" if "body" in fields else "layer_tpl" if "layer_tpl" in fields else ""
    found = getattr(template, name) if name else []
    return list(found) if isinstance(found, list | tuple) else [found]


def _divided(total: int, part: int, template: BaseHParams) -> int:
    if total % part:
        problem = f"{total} layers cannot be divided into {part} equal parts, as {type(template).__qualname__} asks."
        raise refusal("num_layers", problem, f"Use a multiple of {part}.")
    return total // part
