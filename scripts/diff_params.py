"""`x-script diff_params` as a plain file. Its arguments: `x-script diff_params --help`."""

import sys

from xdpx.commands.script import main

if __name__ == "__main__":
    sys.exit(main(["diff_params", *sys.argv[1:]]))
