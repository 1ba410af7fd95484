"""Names of files and texts are UTF-8, whatever the locale of the terminal says."""

from __future__ import annotations

import os
import sys


def ensure() -> None:
    """Start this program again in Python's UTF-8 mode, where its locale has another encoding, e.g. `LC_ALL=POSIX`.

    Only the doors may call it: nothing has been done yet.
    """
    if sys.getfilesystemencoding().lower() != "utf-8" and not sys.flags.utf8_mode:
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
