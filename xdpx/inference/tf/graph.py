"""A network of torch as a function of TensorFlow: exported by torch.export, followed operation by operation.

One way for every network: the core operations that torch.export leaves are few, and `operations.py` has what each is in
TensorFlow. Rows and lengths stay free.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.inference.tf.operations import NEVER_RUN, Operations, name_of
from xdpx.inference.tf.recurrence import whole_recurrence

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.export import ExportedProgram
    from torch.fx import Node

REMEDY = "x-script export_onnx and export_torchscript write other networks."


def program_of(network: nn.Module, inputs: Sequence[Tensor]) -> ExportedProgram:
    """Return a network as torch.export has it, of core operations; every axis of its inputs is free.

    Args:
        network: takes `*given`; on the CPU, in evaluation mode, without weights worked out at every step.
        inputs: a batch, in order, with at least two rows.

    Raises:
        ConfigError: torch.export cannot follow it.
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
    """An exported program, ready to be run by TensorFlow.

    Args:
        tf: the package.
        program: as `program_of` returns it.

    Attributes:
        variables: the weights, by the names that they have in torch.

    Raises:
        ConfigError: TensorFlow has no counterpart of an operation; it is named.
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
        """Return the outputs for tensors of TensorFlow, in the order of the program's inputs."""
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
        if operation is None:  # it only says something about shapes
            return None
        args = _filled(node.args, values)
        kwargs = {name: _filled(value, values) for name, value in node.kwargs.items()}
        try:
            return operation(self._kind(node), *args, **kwargs)
        except NotImplementedError as error:
            raise _refusal(f"uses {node.target} in a way that TensorFlow lacks here: {error}") from error

    def _kind(self, node: Node) -> Any:
        """Return the type of what a node gives; of several tensors a list."""
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
            raise _refusal(f"uses {', '.join(sorted(unknown))}, of which TensorFlow has no counterpart here")


def _filled(value: Any, values: Mapping[Node, Any]) -> Any:
    """Return an argument with what its nodes gave."""
    from torch.fx import Node

    if isinstance(value, Node):
        return values[value]
    if isinstance(value, list | tuple):
        return [_filled(each, values) for each in value]
    return value


def _refusal(problem: str) -> ConfigError:
    return ConfigError(THIS_RUN, [Fault("model", f"{problem}.", REMEDY)])
