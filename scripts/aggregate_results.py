"""`x-script aggregate_results` as a plain file. Its arguments: `x-script aggregate_results --help`."""

import sys

from xdpx.commands.script import main

if __name__ == "__main__":
    sys.exit(main(["aggregate_results", *sys.argv[1:]]))
