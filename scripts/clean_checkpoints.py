"""`x-script clean_checkpoints` as a plain file. Its arguments: `x-script clean_checkpoints --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "clean_checkpoints", *sys.argv[1:]]))
