"""Process-wide settings that are made before JAX starts."""

from __future__ import annotations

import jax

from xdpx.engines.spmd import pgle
from xdpx.experiments.running.options import RunOptions


def prepare(options: RunOptions) -> None:
    """Set XLA's flags and the style of JAX's tracebacks, and open the port of its profiler.

    Raises:
        ConfigError: XLA has already read its flags, without the requested ones.
    """
    pgle.apply(options.profile_guided)
    jax.config.update("jax_traceback_filtering", options.jax_traceback_filtering_option)
    if options.jax_profiler_port is not None:
        jax.profiler.start_server(options.jax_profiler_port)
