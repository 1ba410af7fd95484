"""A torch network as a TensorFlow function: exported by torch.export, then run operation by operation.

One way for every network: torch.export reduces it to a few core operations, and `operations.py` has the TensorFlow
counterpart of each. The number of rows and the lengths stay free.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from xdpx.config.faults import ConfigError, refusal
from xdpx.inference.tf.operations import NEVER_RUN, Operations, name_of
from xdpx.inference.tf.recurrence import whole_recurrence

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.export import ExportedProgram
    from torch.fx import Node

REMEDY = "x-script export_onnx and export_torchscript write other networks."


def program_of(network: nn.Module, inputs: Sequence[Tensor]) -> ExportedProgram:
    """Return the torch.export program of a network, in core operations, with every input axis free.

    Args:
        network: takes positional tensors; on the CPU, in evaluation mode, without parametrised weights.
        inputs: an example batch in that order, with at least two rows.

    Raises:
        ConfigError: torch.export cannot trace it.
    """
    from torch.export import Dim, export

    free = tuple({axis: Dim.AUTO for axis in range(each.dim())} for each in inputs)
    with warnings.catch_warnings(), whole_recurrence(network):
        warnings.simplefilter("ignore")
        try:
            followed = export(network, tuple(inputs), dynamic_shapes=(free,), strict=False)
            program: ExportedProgram = followed.run_decompositions()
        except (RuntimeError, ValueError, TypeError) as error:
            reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise _refusal(f"cannot be followed by torch.export: {reason}") from error
    return program


class Graph:
    """An exported program as a callable that TensorFlow runs.

    Args:
        tf: the package.
        program: as `program_of` returns it.

    Attributes:
        variables: the weights, by their names in torch.

    Raises:
        ConfigError: an operation has no TensorFlow counterpart here; the text names it.
    """

    def __init__(self, tf: ModuleType, program: ExportedProgram) -> None:
        self._tf = tf
        self._operations = Operations(tf)
        self._nodes: list[Node] = list(program.graph.nodes)
        self._refuse_unknown()
        signature = program.graph_signature
        self._held = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        self.variables: dict[str, Any] = {}
        weights = {**program.constants, **program.state_dict}
        for node in self._nodes:
            name = self._held.get(node.name)
            if node.op == "placeholder" and node.users and name is not None and name not in self.variables:
                value = weights[name].detach().cpu()
                self.variables[name] = tf.Variable(value.numpy(), name=name, trainable=value.is_floating_point())

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Return the outputs for TensorFlow tensors, given in the order of the program's inputs."""
        values: dict[Node, Any] = {}
        given = iter(inputs)
        for node in self._nodes:
            held = self._held.get(node.name)
            if node.op == "output":
                return tuple(_filled(each, values) for each in node.args[0])  # type: ignore[union-attr]
            if node.op != "placeholder":
                values[node] = self._result(node, values)
            elif held is None:
                values[node] = next(given)
            elif held in self.variables:
                values[node] = self._tf.convert_to_tensor(self.variables[held])
        raise RuntimeError("this is a bug: a program without outputs.")

    def _result(self, node: Node, values: Mapping[Node, Any]) -> Any:
        operation = self._operations.find(node.target)
        if operation is None:  # it only states facts about shapes
            return None
        args = _filled(node.args, values)
        kwargs = {name: _filled(value, values) for name, value in node.kwargs.items()}
        try:
            return operation(self._kind(node), *args, **kwargs)
        except NotImplementedError as error:
            raise _refusal(f"uses {node.target} in a way that TensorFlow lacks here: {error}") from error

    def _kind(self, node: Node) -> Any:
        """Return the dtype of the result of a node; a list if it has several tensors."""
        found: Any = node.meta.get("val")
        if isinstance(found, tuple | list):
            return [self._operations.type_of(each.dtype) if each is not None else None for each in found]
        return self._operations.type_of(found.dtype) if hasattr(found, "dtype") else None

    def _refuse_unknown(self) -> None:
        called = [node for node in self._nodes if node.op not in {"placeholder", "output"}]
        unknown = {
            str(node.target)
            for node in called
            if name_of(node.target) not in NEVER_RUN
            and (node.op != "call_function" or self._operations.find(node.target) is None)
        }
        if unknown:
            raise _refusal(f"uses {', '.join(sorted(unknown))}, for which TensorFlow has no counterpart here")


def _filled(value: Any, values: Mapping[Node, Any]) -> Any:
    """Return an argument with its nodes replaced by their values."""
    from torch.fx import Node

    if isinstance(value, Node):
        return values[value]
    if isinstance(value, list | tuple):
        return [_filled(each, values) for each in value]
    return value


def _refusal(problem: str) -> ConfigError:
    return refusal("model", f"{problem}.", REMEDY)
