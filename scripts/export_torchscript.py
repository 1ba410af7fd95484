"""`x-script export_torchscript` as a plain file. Its arguments: `x-script export_torchscript --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "export_torchscript", *sys.argv[1:]]))
