"""The files beside the weights in a folder for transformers: config.json, and the tokenizer of the run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from xdpx.config.faults import ConfigError
from xdpx.metrics.judging import NUMBER_COLUMNS, TAG_COLUMNS
from xdpx.tokenizers.base import LibraryTokenizer, Tokenizer

if TYPE_CHECKING:
    from xdpx.config.loading import Run
    from xdpx.models.pytorch.library_form import Form, Problem
    from xdpx.processors.base import Processor

CONFIG, TOKENIZER, TOKENIZER_CONFIG = "config.json", "tokenizer.json", "tokenizer_config.json"
SAME = 1e-6
"""Probabilities that differ by at most this count as equal."""
THRESHOLD = "labels follow a threshold of this run; a pipeline takes the largest probability. They are the same"


class _NoTokenizer(ValueError):
    """The tokenizer of the run cannot be expressed in transformers; the text says why."""


def problem_of(loss: Any) -> Problem | None:
    """Return the problem type of a loss, in the terms of transformers; None if it has no counterpart.

    For probabilities, the loss is tried on some logits, as a subclass may compute anything.
    """
    header = tuple(loss.columns())
    if header == TAG_COLUMNS:
        return "tags"
    if header == NUMBER_COLUMNS:
        return "regression"
    if header[:2] != ("pred", "prob") or not hasattr(loss, "probabilities"):
        return None
    import torch

    logits = _some_logits()
    try:
        found = loss.probabilities(logits)
    except Exception:  # user code, or a loss that does not take logits of two classes, e.g. circle_siamese
        return None
    if torch.allclose(found, logits.sigmoid(), atol=SAME):
        return "multi_label_classification"
    return "single_label_classification" if torch.allclose(found, logits.softmax(dim=-1), atol=SAME) else None


def decides_otherwise(loss: Any) -> bool:
    """Return whether a threshold decides the label instead of the largest probability, which a pipeline uses."""
    if problem_of(loss) != "single_label_classification":
        return False
    prob = loss.probabilities(_some_logits())
    return bool((loss.predict(prob) != prob.argmax(dim=-1)).any())


def _some_logits() -> Any:
    """Return logits of two classes, shape (99, 2), from sure of one to sure of the other."""
    import torch

    gap = torch.linspace(-5.0, 5.0, 99)
    return torch.stack([gap / 2, 0.3 - gap / 3], dim=1)


def texts_of(form: Form, processor: Processor, tokenizer: object) -> tuple[dict[str, str], str]:
    """Return {name: text} of the files beside the weights, and why the tokenizer is missing; "" if it is not."""
    files = {CONFIG: form.config.to_json_string(use_diff=True)}
    try:
        return files | _tokenizer_files(form, processor, tokenizer), ""
    except _NoTokenizer as error:
        return files, str(error)


def own_reading(prepro: Run | None, *parts: object) -> str:
    """Return a sentence about classes of a user between raw text and ids, which a pipeline skips; "" if there are none.

    Args:
        prepro: how the run read raw text, which names the loader; None if that is unknown.
        parts: the tokenizer and the processor of the run.
    """
    kinds = [*([prepro.picked("loader")] if prepro is not None else []), *map(type, parts)]
    own = [kind.__name__ for kind in kinds if kind is not type(None) and not kind.__module__.startswith("xdpx.")]
    if not own:
        return ""
    return (
        f"texts are read by your own {' and '.join(own)}, which transformers lacks: a pipeline gives the same "
        "probabilities only for texts that they do not change"
    )


def _tokenizer_files(form: Form, processor: Any, tokenizer: object) -> dict[str, str]:
    if not isinstance(tokenizer, LibraryTokenizer):
        raise _NoTokenizer(f"the tokenizer {type(tokenizer).__name__} is not from transformers")
    before, behind = getattr(processor, "cls_index", None), getattr(processor, "sep_index", None)
    if before is None or behind is None or processor.vocabulary is None:
        raise _NoTokenizer(f"the processor {type(processor).__name__} does not frame texts with [CLS] and [SEP]")
    known, tokens = processor.parameters, processor.vocabulary.tokens
    first, last = ((tokens[index], index) for index in (before, behind))
    definition = json.loads(tokenizer.library.to_str())
    template = _template(first, last, separators=getattr(known, "separators", 1))
    definition |= {"truncation": None, "padding": None, "post_processor": template}
    special = {"cls_token": first[0], "sep_token": last[0], "pad_token": known.pad_word, "unk_token": known.unk_word}
    special |= {"mask_token": "[MASK]"} if "[MASK]" in processor.vocabulary else {}
    segments = getattr(form.config, "type_vocab_size", 0) > 1
    names = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": known.max_len, "padding_side": "right",
        "truncation_side": "right", "clean_up_tokenization_spaces": False, "model_input_names": names, **special,
    }  # fmt: skip
    return {TOKENIZER: json.dumps(definition, ensure_ascii=False), TOKENIZER_CONFIG: json.dumps(settings, indent=2)}


def _template(first: tuple[str, int], last: tuple[str, int], *, separators: int) -> dict[str, Any]:
    """Return the post-processor that adds special tokens to a text or a pair as our processors do."""

    def special(token: tuple[str, int], kind: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": token[0], "type_id": kind}}

    def text(name: str, kind: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [special(first, 0), text("A", 0), special(last, 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, *[special(last, 0)] * (separators - 1), text("B", 1), special(last, 1)],
        "special_tokens": {name: {"id": name, "ids": [index], "tokens": [name]} for name, index in (first, last)},
    }


def tokenizer_of(prepro: Run | None, resources: str) -> Tokenizer | None:
    """Return the tokenizer of the run; None if it is unknown or cannot be built."""
    try:
        found: Tokenizer | None = None if prepro is None else prepro.build("tokenizer", resources=resources)
        return found
    except ConfigError:
        return None
