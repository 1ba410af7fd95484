"""Words that stand between spaces already, for models that look at words beside the pieces they are made of."""

from __future__ import annotations

from xdpx.tokenizers.base import Tokenizer


class WholeWords(Tokenizer):
    """Every run of characters without white space is a token, as loaders cut segmented text into words."""

    def tokenize(self, text: str) -> list[str]:
        """Cut one text at its white space."""
        return (text.lower() if self.parameters.lower else text).split()
