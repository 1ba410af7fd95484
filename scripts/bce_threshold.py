"""`x-script bce_threshold` as a plain file. Its arguments: `x-script bce_threshold --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "bce_threshold", *sys.argv[1:]]))
