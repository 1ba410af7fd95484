"""`x-script aggregate_results` as a plain file. Its arguments: `x-script aggregate_results --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "aggregate_results", *sys.argv[1:]]))
