"""Networks only: from the arrays of a batch to logits. A loss, a device and a step are decided elsewhere."""

from typing import Any

from xdpx.config.registry import Registry

models: Registry[Any] = Registry(
    "model",
    {
        "bert_classification": "xdpx.models.pytorch.bert_classification:BertClassification",
        "bert_lm": "xdpx.models.pytorch.bert_lm:BertLanguageModel",
        "cls_cnn": "xdpx.models.pytorch.cls_cnn:ClsCnn",
        "match_cnn": "xdpx.models.pytorch.match_cnn:MatchCnn",
        "re2": "xdpx.models.pytorch.re2:RE2",
    },
)
register = models.register
