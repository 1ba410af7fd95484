"""One text and its label."""

from xdpx.loaders.base import Loader


class SingleLoader(Loader):
    """Columns: text, label; or text alone."""
