"""Two texts and their label."""

from typing import ClassVar

from xdpx.loaders.base import Loader


class PairLoader(Loader):
    """Columns: text1, text2, label; or the two texts alone."""

    text_fields: ClassVar[tuple[str, ...]] = ("text1", "text2")
