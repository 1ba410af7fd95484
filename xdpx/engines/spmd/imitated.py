"""Devices that a CPU imitates, as many as a plan needs. Their number is fixed when JAX starts its backend."""

from __future__ import annotations

from typing import Any

import jax

from xdpx.config.faults import ConfigError, Fault


def imitated_devices(count: int) -> list[Any]:
    """Return so many CPU devices, the first ones; before JAX has started, missing ones are made.

    Raises:
        ConfigError: JAX runs already, with fewer.
    """
    try:
        jax.config.update("jax_num_cpu_devices", count)
        jax.config.update("jax_platforms", "cpu")
    except RuntimeError:
        pass  # JAX runs already: what there is must do
    there = jax.devices("cpu")
    if len(there) < count:
        problem = f"{count} devices are to be imitated, JAX runs already with {len(there)}."
        remedy = f"Plan in a process of its own (x-exp --plan), or set JAX_NUM_CPU_DEVICES={count} before JAX starts."
        raise ConfigError("plan", [Fault("devices", problem, remedy)])
    return there[:count]
