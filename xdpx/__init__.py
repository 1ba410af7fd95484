"""XDPX: one config, any environment; preprocess, train, evaluate and predict with text models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdpx.config.faults import ConfigError
    from xdpx.config.loading import load
    from xdpx.config.parameters import Parameters, param

__version__ = "1.0.0.dev0"
__all__ = ["ConfigError", "Parameters", "__version__", "load", "param"]


def __getattr__(name: str) -> Any:
    """Give a public name; its room is imported when it is asked for, so that `import xdpx` costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'xdpx' has no attribute '{name}'")
    from xdpx.config import faults, loading, parameters

    homes = {"ConfigError": faults, "load": loading, "Parameters": parameters, "param": parameters}
    return getattr(homes[name], name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
