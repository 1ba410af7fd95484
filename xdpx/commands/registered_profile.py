"""Profile the forward pass of a registered profile's network: milliseconds per batch, time by module, and a trace."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from xdpx.config.faults import ConfigError, Fault
from xdpx.engines.base import Traced
from xdpx.utils import io

if TYPE_CHECKING:
    from torch import nn

    from xdpx.models.profiles import Profile

SEED = 1
WARM = 2
"""Batches before the measurement: the first ones allocate memory and compile."""
ENGINES = ("pytorch", "spmd")


class Options(NamedTuple):
    """Options of the command line that are not keys of a network.

    Attributes:
        engine: "pytorch", or "spmd" for the same network on JAX.
        profile_steps: number of batches to time, and again to trace.
        cuda: whether to use a GPU; None: if there is one.
    """

    engine: str = "pytorch"
    profile_steps: int = 3
    cuda: bool | None = None


class Measured(NamedTuple):
    """A measurable network: `call` runs one batch and returns when the device has finished."""

    call: Callable[[], object]
    traced: Callable[[str], AbstractContextManager[Traced]]
    place: str


def read_options(name: str, words: Mapping[str, Any]) -> tuple[Options, dict[str, Any]]:
    """Return the options among the words, and the other words. Raises ConfigError for an invalid value."""
    given = {key: value for key, value in words.items() if key in Options._fields}
    options = Options(**given)
    faults = []
    if options.engine not in ENGINES:
        faults.append(Fault("engine", f"is {options.engine!r}.", f"Choose one of: {', '.join(ENGINES)}."))
    if not isinstance(options.profile_steps, int) or options.profile_steps < 1:
        faults.append(Fault("profile_steps", f"is {options.profile_steps!r}.", "Use an integer above 0."))
    if options.cuda not in {None, True, False}:
        faults.append(Fault("cuda", f"is {options.cuda!r}.", "Use true, false or null."))
    if faults:
        raise ConfigError(f"profile {name}", faults)
    return options, {key: value for key, value in words.items() if key not in given}


def measure(name: str, words: Mapping[str, Any], path: str) -> list[str]:
    """Measure a profile, write its trace, and return the lines of its table.

    Args:
        name: of the profile.
        words: options, attributes of the profile, and keys of its network.
        path: of the trace (.json), local or remote.

    Raises:
        ConfigError: a value is invalid, or the network has no counterpart on JAX.
    """
    from xdpx.training.callbacks.profiling import module_lines

    options, others = read_options(name, words)
    profile = _profile(name, others)
    module, data = _built(profile, others)
    measured = (_on_jax if options.engine == "spmd" else _on_torch)(profile, module, data, options)
    for _ in range(WARM):
        measured.call()
    began = time.perf_counter()
    for _ in range(options.profile_steps):
        measured.call()
    seconds = (time.perf_counter() - began) / options.profile_steps
    with tempfile.TemporaryDirectory(prefix="xdpx-profile-") as folder:
        io.makedirs(io.join(folder, "first"))
        with measured.traced(io.join(folder, "first")):
            measured.call()  # warm up the tracer, whose start would count as part of the first batch
        with measured.traced(folder) as found:
            for _ in range(options.profile_steps):
                measured.call()
        io.makedirs(io.parent(path) or ".")
        io.copy(io.join(folder, "trace.json"), path)
    told = f"{name}: {type(module).__name__}, {_weights(module)} weights, {_shapes(data)}, {measured.place}"
    return [told, f"{1000 * seconds:10.3f} ms per batch", *module_lines(found, options.profile_steps)]


def _profile(name: str, others: dict[str, Any]) -> Profile:
    """Return the profile with its attributes set from the words, which are removed from `others`."""
    from xdpx.models.profiles import OWN, profiles

    profile = profiles[name]()
    for key in OWN:
        if key in others:
            value = others.pop(key)
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"profile {name}", [Fault(key, f"is {value!r}.", "Use an integer above 0.")])
            setattr(profile, key, value)
    return profile


def _built(profile: Profile, keys: Mapping[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
    import torch

    torch.manual_seed(SEED)
    module = profile.build_module(**keys).eval()
    return module, profile.batch(module)


def _on_torch(profile: Profile, module: nn.Module, data: dict[str, Any], options: Options) -> Measured:
    import torch

    from xdpx.engines.pytorch.profiling import traced
    from xdpx.engines.pytorch.transfer import to_device

    del profile
    on_gpu = torch.cuda.is_available() if options.cuda is None else options.cuda
    device = torch.device("cuda" if on_gpu else "cpu")
    module.to(device)
    placed = to_device(data, device)

    def call() -> None:
        with torch.inference_mode():
            module(**placed)
        if on_gpu:
            torch.cuda.synchronize()

    return Measured(call, lambda folder: traced(module, folder), f"PyTorch on {device}")


def _on_jax(profile: Profile, module: nn.Module, data: dict[str, Any], options: Options) -> Measured:
    from xdpx.commands.experiment import with_extra

    del options
    return with_extra(lambda: _counterpart(str(profile.model_config()["model"]), module, data))


def _counterpart(model: str, module: nn.Module, data: dict[str, Any]) -> Measured:
    """Return the same network on JAX, with its own random weights."""
    import jax
    import numpy as np

    from xdpx.engines.spmd.profiling import traced
    from xdpx.models.spmd.base_layer import RANDOM, eval_context
    from xdpx.optimizers.spmd.grouped import GroupedLearner
    from xdpx.tasks.spmd.paired import MODELS, PairedTask

    if model not in MODELS:
        problem = f"'{model}' is computed on PyTorch only."
        raise ConfigError("engine=spmd", [Fault("model", problem, f"On JAX there are {', '.join(sorted(MODELS))}.")])
    counterpart = MODELS[model](module)
    inputs = {key: value.numpy() for key, value in data.items()}
    rows, tokens = inputs["input_ids"].shape
    guessed = inputs.get("masked_positions")
    target = np.zeros((rows, tokens) if model == "causal_lm" else len(guessed) if guessed is not None else rows, int)
    batch = {"net_input": inputs, "target": target, "id": np.arange(rows), "ntokens": rows * tokens}
    arranged = counterpart.arranged(batch, counterpart.shape_of(batch))
    task = PairedTask(counterpart, None, GroupedLearner(None, {}))
    variables = jax.jit(task.init)(jax.random.key(SEED), arranged)

    def logits(variables: Any, batch: Any) -> jax.Array:
        with eval_context():
            return task.logits(variables, batch, {RANDOM: jax.random.key(SEED)})

    forward = jax.jit(logits)
    place = f"JAX on {jax.devices()[0].platform}"
    return Measured(lambda: forward(variables, arranged).block_until_ready(), traced, place)


def _weights(module: nn.Module) -> str:
    return f"{sum(weight.numel() for weight in module.parameters()):,}"


def _shapes(data: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {' x '.join(map(str, value.shape))}" for key, value in data.items())
