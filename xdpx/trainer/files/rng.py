"""Save and restore the random generators of one process: Python, NumPy, torch on the CPU and on devices."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from xdpx.logger import log

MISSING = "random numbers from here on differ from those of an uninterrupted run"


def capture(*, all_devices: bool = False) -> dict[str, Any]:
    """Return the state of all generators as plain values and tensors, readable by `restore` and by the original.

    Args:
        all_devices: those of all CUDA devices, as the original stores them for several processes; else that of the
            current device.
    """
    import numpy as np
    import torch

    # Not NumPy's own array, since unpickling one needs code of NumPy.
    kind, keys, *rest = np.random.get_state()
    states = {
        "python": random.getstate(),
        "numpy": (str(kind), [int(key) for key in keys], *(_plain(value) for value in rest)),
        "cpu": torch.random.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all() if all_devices else torch.cuda.get_rng_state()
    if torch.backends.mps.is_available():
        states["mps"] = torch.mps.get_rng_state()
    return states


def _plain(value: Any) -> int | float:
    return float(value) if isinstance(value, float) else int(value)


def restore(states: Mapping[str, Any] | None, *, where: str = "the checkpoint") -> None:
    """Restore all generators from a state written by `capture` or by the original.

    A generator without a saved state is unchanged, and a warning is logged.

    Args:
        states: result of `capture`; None if there is none.
        where: name of its source in messages.
    """
    import numpy as np
    import torch

    if states is None:
        log.warning(f"{where}: has no state of the random generators for this process: {MISSING}.")
        return
    version, keys, gauss = states["python"]
    random.setstate((version, tuple(keys), gauss))
    kind, words, *rest = states["numpy"]
    np.random.set_state((kind, np.asarray(words, dtype=np.uint32), *rest))
    torch.random.set_rng_state(states["cpu"].cpu())
    if torch.cuda.is_available():
        _restore_cuda(states.get("cuda"), where)
    if torch.backends.mps.is_available() and "mps" in states:
        torch.mps.set_rng_state(states["mps"].cpu())


def _restore_cuda(state: object, where: str) -> None:
    import torch

    if isinstance(state, list | tuple) and len(state) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all([one.cpu() for one in state])
    elif isinstance(state, list | tuple) and len(state) > torch.cuda.current_device():
        torch.cuda.set_rng_state(state[torch.cuda.current_device()].cpu())
    elif isinstance(state, torch.Tensor):
        torch.cuda.set_rng_state(state.cpu())
    else:
        log.warning(f"{where}: has no state of the random generator of this GPU: {MISSING}.")
