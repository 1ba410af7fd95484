"""`x-script prune_heads` as a plain file. Its arguments: `x-script prune_heads --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "prune_heads", *sys.argv[1:]]))
