"""`python scripts NAME ...` is `x-script NAME ...`, in a checkout that is not installed."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])

from xdpx.run import main  # noqa: E402 - found by the line above

if __name__ == "__main__":
    sys.exit(main(["x-script", *sys.argv[1:]]))
