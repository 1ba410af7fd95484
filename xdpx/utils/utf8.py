"""Use UTF-8 for file names and texts, whatever the locale of the terminal."""

from __future__ import annotations

import os
import sys


def ensure() -> None:
    """Restart this program in Python's UTF-8 mode if its locale has another encoding, e.g. `LC_ALL=POSIX`.

    To be called only at the start of a command, before any other work.
    """
    if sys.getfilesystemencoding().lower() != "utf-8" and not sys.flags.utf8_mode:
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
