"""`x-script verify` as a plain file. Its arguments: `x-script verify --help`."""

import sys

from xdpx.commands.script import main

if __name__ == "__main__":
    sys.exit(main(["verify", *sys.argv[1:]]))
