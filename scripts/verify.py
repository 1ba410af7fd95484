"""`x-script verify` as a plain file. Its arguments: `x-script verify --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "verify", *sys.argv[1:]]))
