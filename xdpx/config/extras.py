"""Packages that come with an extra of xdpx, imported where they are used."""

from __future__ import annotations

import os
from typing import Any

from xdpx.config.faults import THIS_RUN, ConfigError, Fault

TF = "Install it: pip install 'xdpx[tf]'."


def tensorflow(key: str, what: str) -> Any:
    """Return the package tensorflow, told to be quiet.

    Args:
        key: of the config, which asks for it.
        what: says what that key is, as in "is 'savedmodel'".

    Raises:
        ConfigError: it is not installed here; the sentence names the extra.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # of its C++ parts, which read it when they are loaded
    try:
        import tensorflow
    except ImportError as error:
        raise ConfigError(THIS_RUN, [Fault(key, f"{what}, which needs TensorFlow.", TF)]) from error
    return tensorflow
