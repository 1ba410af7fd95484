"""The TensorFlow counterpart of each operation in torch's core set: one table from names to functions.

A function gets the dtype of its result first, then the arguments of the torch operation under the same names. Sizes
are Python integers where they are fixed, else int64 tensors. A function raises NotImplementedError for arguments that
it does not support.

Source of the names and of what they mean: the page "IRs" of torch.compiler, section "Core Aten IR".
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from xdpx.inference.tf.choices import Choices
from xdpx.inference.tf.layers import Layers
from xdpx.inference.tf.numbers import Numbers
from xdpx.inference.tf.shapes import Operation, Shapes

ON_SIZES: Mapping[str, Operation] = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "eq", "ne", "lt", "le", "gt", "ge", "and_", "or_")
}
"""Python's own operators, which programs apply to sizes."""
NEVER_RUN = frozenset(
    {"_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size"}
)
"""Operations that only state facts about shapes."""


class Operations:
    """The table of operations, for an imported TensorFlow.

    Args:
        tf: the package.
    """

    def __init__(self, tf: ModuleType) -> None:
        self._tf = tf
        self._table: dict[str, Operation] = {}
        for part in (Shapes, Choices, Numbers, Layers):
            self._table |= part(tf).table()
        self._python: dict[str, Operation] = {
            **ON_SIZES, "getitem": operator.getitem, "sym_max": tf.maximum, "sym_min": tf.minimum,
        }  # fmt: skip

    def find(self, target: object) -> Operation | None:
        """Return the function for the target of a node; None for an unknown operation."""
        call = None if hasattr(target, "overloadpacket") else self._python.get(getattr(target, "__name__", ""))
        if call is not None:
            return lambda kind, *given: call(*given)
        return self._table.get(name_of(target))

    def type_of(self, dtype: object) -> Any:
        """Return the TensorFlow dtype for a torch dtype."""
        return getattr(self._tf, str(dtype).removeprefix("torch."))


def name_of(target: object) -> str:
    """Return the name of an operation, without its overload: `view` of aten.view.default."""
    return str(target).removeprefix("aten.").removeprefix("xdpx.").partition(".")[0]
