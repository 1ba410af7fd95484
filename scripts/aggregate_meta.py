"""`x-script aggregate_meta` as a plain file. Its arguments: `x-script aggregate_meta --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "aggregate_meta", *sys.argv[1:]]))
