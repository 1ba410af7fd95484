"""Basics that every other package uses: files at any path, atomic writes, and communication between processes.

`io` is the object that opens every file of the package. `io` and `OSS` are imported on first access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdpx.utils import commit, distributed_utils, pdb
    from xdpx.utils.io_utils import io
    from xdpx.utils.oss import OSS

__all__ = ["OSS", "commit", "distributed_utils", "io", "pdb"]


def __getattr__(name: str) -> Any:
    # The modules in __all__ need no case here: `from xdpx.utils import commit` imports submodules by itself.
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
