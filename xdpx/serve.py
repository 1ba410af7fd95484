"""Entry point of the interactive prompt: `python xdpx/serve.py SAVE_DIR`, the same as `x-script serve SAVE_DIR`."""

from __future__ import annotations

import os
import sys

if sys.path and sys.path[0] and os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(__file__)):
    # Python puts the folder of a script first on the path, where xdpx/tokenizers would shadow the library tokenizers.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

from xdpx.utils import collecting, utf8


def main(words: list[str] | None = None) -> int:
    """Answer lines of standard input until its end, and return the exit code."""
    from xdpx.commands.outcomes import exit_code
    from xdpx.commands.script import main as script

    given = sys.argv[1:] if words is None else words
    asked = ["serve", *(word for word in given if word != "--verbose")]
    return exit_code(lambda: script(asked), verbose="--verbose" in given)


if __name__ == "__main__":
    utf8.ensure()
    collecting.rarely()
    sys.exit(main())
