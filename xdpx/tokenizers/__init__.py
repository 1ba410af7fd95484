"""Tokenizers, with their registry by the names used in configs; vocabularies and label maps."""

from typing import Any

from xdpx.config.registry import Registry

tokenizers: Registry[Any] = Registry(
    "tokenizer",
    {
        "space": "xdpx.tokenizers.words:SpaceTokenizer",
        "char_zh": "xdpx.tokenizers.words:ChineseCharacterTokenizer",
        "bert": "xdpx.tokenizers.bert:BertTokenizer",
        "bert_id": "xdpx.tokenizers.bert:BertIdTokenizer",
        "nltk": "xdpx.tokenizers.nltk:NLTKTokenizer",
        "auto": "xdpx.tokenizers.auto:AutoTokenizer",
    },
    base="xdpx.tokenizers.base:Tokenizer",
)
register = tokenizers.register
