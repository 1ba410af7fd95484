"""XDPX: one config, any environment; preprocess, train, evaluate and predict with text models."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdpx.config.faults import ConfigError
    from xdpx.config.loading import load
    from xdpx.config.parameters import Parameters, param

__version__ = "1.0.0.dev0"

_PUBLIC = {
    "Parameters": "xdpx.config.parameters:Parameters",
    "param": "xdpx.config.parameters:param",
    "load": "xdpx.config.loading:load",
    "ConfigError": "xdpx.config.faults:ConfigError",
}
"""Public names, imported when they are asked for, so that `import xdpx` costs nothing."""

__all__ = ["ConfigError", "Parameters", "__version__", "load", "param"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'xdpx' has no attribute '{name}'")
    module, _, attribute = _PUBLIC[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
