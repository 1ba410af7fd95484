"""The ground: any path, whole-or-nothing writes, and where a process stands among its peers.

`io` is the object that opens every file of the package; it and `OSS` are made at first use, so importing this is free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdpx.utils import commit, distributed_utils, pdb
    from xdpx.utils.io_utils import io
    from xdpx.utils.oss import OSS

__all__ = ["OSS", "commit", "distributed_utils", "io", "pdb"]


def __getattr__(name: str) -> Any:
    # The modules in __all__ need no help: `from xdpx.utils import commit` finds them by itself.
    value: Any
    if name == "io":
        from xdpx.utils.io_utils import io

        value = io
    elif name == "OSS":
        from xdpx.utils.oss import OSS

        value = OSS
    else:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    globals()[name] = value
    return value
