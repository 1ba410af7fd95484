"""Three texts: one, its like, and another."""

from typing import ClassVar

from xdpx.loaders.base import Loader


class TripletLoader(Loader):
    """Columns: a text, one that means the same, one that does not; a label behind them is taken."""

    text_fields: ClassVar[tuple[str, ...]] = ("text1", "text2", "text3")
