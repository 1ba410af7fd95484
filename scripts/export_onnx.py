"""`x-script export_onnx` as a plain file. Its arguments: `x-script export_onnx --help`."""

import sys

from xdpx.run import main

if __name__ == "__main__":
    sys.exit(main(["x-script", "export_onnx", *sys.argv[1:]]))
