"""Questions and the passages that answer them."""

from typing import ClassVar

from xdpx.loaders.base import Loader


class DPRLoader(Loader):
    """Columns: a question, the passage that answers it; a label behind them is taken."""

    text_fields: ClassVar[tuple[str, ...]] = ("question", "passage")
