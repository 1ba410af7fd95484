"""Text -> token ids: the table of tokenizers, by the name a config uses; the vocabulary and the labels."""

from typing import Any

from xdpx.config.registry import Registry

tokenizers: Registry[Any] = Registry(
    "tokenizer",
    {
        "space": "xdpx.tokenizers.space:SpaceTokenizer",
        "char_zh": "xdpx.tokenizers.char_zh:ChineseCharacterTokenizer",
        "bert": "xdpx.tokenizers.bert:BertTokenizer",
        "auto": "xdpx.tokenizers.auto:AutoTokenizer",
    },
)
register = tokenizers.register
