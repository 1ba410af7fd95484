"""`torch_compile` and what accelerate's launcher says about compilation, as one set of options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from xdpx.arguments.fields import Fields
from xdpx.arguments.structured import truth


@dataclass(frozen=True)
class CompileOptions:
    """How torch.compile is called: with the backend, mode and flags that it knows by these names."""

    backend: str = "inductor"
    mode: str | None = None
    fullgraph: bool = False
    dynamic: bool | None = None


def compile_options(arguments: Fields, environment: Mapping[str, str] = os.environ) -> CompileOptions | None:
    """Give how to compile the model, by the arguments or else the launcher's environment; None: do not."""
    if arguments.torch_compile:
        return CompileOptions(arguments.torch_compile_backend or "inductor", arguments.torch_compile_mode)
    backend = environment.get("ACCELERATE_DYNAMO_BACKEND", "no").lower()
    if backend in {"no", "none", ""}:
        return None
    mode = environment.get("ACCELERATE_DYNAMO_MODE", "default")
    return CompileOptions(
        backend=backend,
        mode=None if mode == "default" else mode,
        fullgraph=truth(environment.get("ACCELERATE_DYNAMO_USE_FULLGRAPH", "false")),
        dynamic=truth(environment.get("ACCELERATE_DYNAMO_USE_DYNAMIC", "false")) or None,
    )
