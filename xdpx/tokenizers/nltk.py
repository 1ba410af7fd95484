"""The tokenizer `nltk`: rules of NLTK that need no data files, for tweets, the Penn Treebank, or toktok."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any, Literal

from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.config.parameters import param
from xdpx.tokenizers.base import Tokenizer

RULES = {
    "tweet": "nltk.tokenize.casual:TweetTokenizer",
    "treebank": "nltk.tokenize.treebank:TreebankWordTokenizer",
    "toktok": "nltk.tokenize.toktok:ToktokTokenizer",
}


class NLTKTokenizer(Tokenizer):
    """Tokenizes with the class of NLTK that `nltk_rules` names; with tweet, emoticons keep their case."""

    class Parameters(Tokenizer.Parameters):
        """Keys of the NLTK tokenizer."""

        nltk_rules: Literal["tweet", "treebank", "toktok"] = param(
            "tweet",
            doc="tweet: words, emoticons, hashtags; treebank: do n't, one sentence at a time; toktok: fast and plain.",
        )

    def tokenize(self, text: str) -> list[str]:
        """Return the tokens of one text."""
        lowers = self.parameters.lower and self.parameters.nltk_rules != "tweet"
        return [str(token) for token in self._library.tokenize(text.lower() if lowers else text)]

    @cached_property
    def _library(self) -> Any:
        rules = self.parameters.nltk_rules
        module, _, name = RULES[rules].partition(":")
        try:
            kind = getattr(import_module(module), name)
        except ImportError as error:
            fault = Fault("tokenizer", "is 'nltk', which is not installed.", "Install it: pip install 'xdpx[nltk]'.")
            raise ConfigError(THIS_RUN, [fault]) from error
        return kind(preserve_case=not self.parameters.lower) if rules == "tweet" else kind()

    def __getstate__(self) -> dict[str, Any]:
        """Return only the parameters, for worker processes."""
        return {"parameters": self.parameters, "resources": self.resources}
