"""`x-script pgle_profile` as a plain file. Its arguments: `x-script pgle_profile --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "pgle_profile", *sys.argv[1:]]))
