"""Import optional packages that are installed by extras of xdpx."""

from __future__ import annotations

import os
from typing import Any

from xdpx.config.faults import refusal

TF = "Install it: pip install 'xdpx[tf]'."


def tensorflow(key: str, what: str) -> Any:
    """Return the package tensorflow, imported with reduced logging.

    Args:
        key: of the config, that needs it.
        what: clause about the key for the message, e.g. "is 'savedmodel'".

    Raises:
        ConfigError: it is not installed; the remedy names the extra.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read by the C++ parts when they are loaded
    try:
        import tensorflow
    except ImportError as error:
        raise refusal(key, f"{what}, which needs TensorFlow.", TF) from error
    return tensorflow
