"""Pre-training tasks whose predictions are readable: the masked text, the original tokens, and the model's guesses.

Letters: B rows, T positions, L the longest text in tokens, K messages of a session, M masked positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import compress
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.config import parameters as declare
from xdpx.losses.base import Batch
from xdpx.losses.bert import masks_of
from xdpx.tasks.default import Task
from xdpx.tasks.parameters import DataParameters, NetworkParameters
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.utils import io

NOTHING = -1
FRAME = ("[CLS]", "[SEP]", "[PAD]")
"""Special tokens that are left out of the text shown."""
BETWEEN = " | "
SEEMS = 0.5
"""Probability above which a message is predicted to be from another session."""


class TextDiagnosis(Task):
    """Pre-trains as `default` does; x-pred shows each text, its masked tokens, and the predicted tokens and class.

    A partial evaluation (`max_eval_steps`) uses texts from all documents. Token ids of everything scored are kept, so a
    large split takes memory for L numbers per row and column.
    """

    shuffles_held_out: ClassVar[bool] = True

    class Parameters(DataParameters, NetworkParameters):
        """Keys of `slm`."""

        max_len: int = declare.param(doc="Longest text in tokens, from meta.hjson.", gt=0)
        max_messages: int | None = declare.param(None, gt=0, doc="Most messages of a session, from meta.hjson.")
        data_dir: str | None = declare.param(None, doc="The folder that x-prepro wrote; its vocab.txt is used.")

    parameters: Any

    def valid_step(self, batch: Batch) -> dict[str, Tensor]:
        """Return the predictions of the loss, together with those of `shown`."""
        reader = Reader(self.model)
        return self.loss.predictions(reader, batch) | self.shown(reader, batch)

    def shown(self, reader: Reader, batch: Batch) -> dict[str, Tensor]:
        """Return token ids (B, L), -1 for none: origin_ids, input_ids, and guessed_ids at masked positions."""
        net_input = batch["net_input"]
        places, ids = masks_of(net_input, key="task"), net_input["input_ids"]
        seen = ids.masked_fill(~net_input["attention_mask"].bool(), NOTHING)
        texts = {
            "origin_ids": _put(seen, places, batch["target"]),
            "input_ids": seen,
            "guessed_ids": _put(torch.full_like(ids, NOTHING), places, reader.tokens.argmax(dim=-1)),
        }
        return {name: self.padded(each) for name, each in texts.items()}

    def padded(self, ids: Tensor) -> Tensor:
        """Make ids (B, T) as wide as every batch can be, (B, L)."""
        return _widened(ids, self.parameters.max_len).int()

    def header(self) -> list[str]:
        """Name the columns that `rows` gives."""
        return ["origin_text", "cls_targets", "input_text", "mask_pred", "cls_pred", "cls_probs"]

    def rows(self, predictions: Mapping[str, Any], labels: Sequence[str] | None = None) -> Iterator[list[str]]:
        """Yield the cells of each text; those about classes are empty where none are learned."""
        texts = [predictions[name] for name in ("origin_ids", "input_ids", "guessed_ids")]
        for index in range(len(texts[0])):
            origin, seen, guessed = (self.text(each[index]) for each in texts)
            right, told, shares = self._classes(predictions, index, labels)
            yield [origin, right, seen, guessed, told, shares]

    def _classes(
        self, predictions: Mapping[str, Any], index: int, labels: Sequence[str] | None
    ) -> tuple[str, str, str]:
        if "prob" not in predictions:
            return "", "", ""
        prob = np.asarray(predictions["prob"], np.float64).round(6)
        names = labels if labels is not None and len(labels) == prob.shape[1] else list(map(str, range(prob.shape[1])))
        right = names[int(predictions["target"][index])] if "target" in predictions else ""
        return right, names[int(predictions["pred"][index])], str(prob[index].tolist())

    def text(self, ids: Any) -> str:
        """Return ids as text, without special tokens."""
        kept = [index for index in np.asarray(ids).tolist() if index != NOTHING and index not in self._frame]
        return text_of(kept, self._tokens)

    @cached_property
    def _tokens(self) -> Sequence[str] | None:
        return tokens_of(self.parameters.data_dir)

    @cached_property
    def _frame(self) -> frozenset[int]:
        return frozenset(index for index, token in enumerate(self._tokens or ()) if token in FRAME)


class SessionDiagnosis(TextDiagnosis):
    """Random-message replacement; x-pred shows each session, its masks, and the messages replaced and predicted so.

    A cell holds the messages of a session in order, separated by a bar.
    """

    class Parameters(TextDiagnosis.Parameters):
        """Keys of `rmr`."""

    def shown(self, reader: Reader, batch: Batch) -> dict[str, Tensor]:
        """Return the ids of all messages (B, K, L), including masked_ids; and replaced_prob and replaced (B, K)."""
        places, ids = masks_of(batch["net_input"], key="task"), batch["net_input"]["input_ids"]
        most, real = self.parameters.max_messages, batch["net_input"]["attention_mask"].bool().any(dim=-1)
        return super().shown(reader, batch) | {
            "masked_ids": self.padded(_put(torch.full_like(ids, NOTHING), places, batch["target"])),
            "replaced_prob": _widened(reader.told.float().sigmoid().masked_fill(~real, NOTHING), most),
            "replaced": _widened(batch["cls_target"].masked_fill(~real, NOTHING), most),
        }

    def padded(self, ids: Tensor) -> Tensor:
        """Pad ids (B, K', T) to the largest size of any batch, (B, K, L)."""
        wide = super().padded(ids).transpose(1, 2)
        return _widened(wide, self.parameters.max_messages).transpose(1, 2)

    def header(self) -> list[str]:
        """Return the names of the columns that `rows` yields."""
        return [f"session_{name}" for name in ("text", "mask_target", "mask_pred", "prob", "target", "pred")]

    def rows(self, predictions: Mapping[str, Any], labels: Sequence[str] | None = None) -> Iterator[list[str]]:
        """Yield the cells of each session: texts, replacement probabilities, and messages replaced and predicted so."""
        del labels
        prob, replaced = (np.asarray(predictions[name]) for name in ("replaced_prob", "replaced"))
        for index in range(len(prob)):
            real = np.flatnonzero(prob[index] != NOTHING)
            texts, masked, guessed = (
                [self.text(predictions[name][index][message]) for message in real]
                for name in ("input_ids", "masked_ids", "guessed_ids")
            )
            shares = prob[index][real]
            was, seems = replaced[index][real] == 1, shares > SEEMS
            yield [
                *(BETWEEN.join(each) for each in (texts, masked, guessed)),
                str(shares.astype(np.float64).round(4).tolist()),
                *(BETWEEN.join(compress(texts, chosen)) for chosen in (was, seems)),
            ]


class Reader(nn.Module):
    """Wraps a model, and keeps the outputs of its last call.

    Attributes:
        tokens: logits of masked positions, (M, V).
        told: the output after these, e.g. logits of classes; set only if there is one.
    """

    tokens: Tensor
    told: Tensor

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **net_input: Any) -> Any:
        """Return the output of the model."""
        output = self.model(**net_input)
        self.tokens, *others = (output,) if isinstance(output, Tensor) else output
        if others:
            self.told = others[0]
        return output


def tokens_of(data_dir: str | None) -> Sequence[str] | None:
    """Return the vocabulary of prepared data; None if the file is missing, and then texts are shown as token ids."""
    path = io.join(data_dir or "", "vocab.txt")
    return Vocabulary.read(path).tokens if io.isfile(path) else None


def text_of(ids: Sequence[int], tokens: Sequence[str] | None) -> str:
    """Return tokens as text, with subwords joined (WordPiece ##, or the word-start marks of BPE and SentencePiece)."""
    if tokens is None:
        return " ".join(map(str, ids))
    pieces = [tokens[index] for index in ids]
    if any(piece[:1] in {"\u0120", "\u2581"} for piece in pieces):
        return "".join(pieces).replace("\u0120", " ").replace("\u2581", " ").strip()
    return " ".join(pieces).replace(" ##", "")


def _put(ids: Tensor, places: Tensor, tokens: Tensor) -> Tensor:
    """Return a copy of `ids` with tokens (M,) put at `places`, flat indices into it."""
    return ids.flatten().index_copy(0, places, tokens).view_as(ids)


def _widened(rows: Tensor, width: int) -> Tensor:
    """Return rows (..., W) with `width` columns: new ones are filled with -1, surplus ones (padding) cut off."""
    return functional.pad(rows[..., :width], (0, max(width - rows.shape[-1], 0)), value=NOTHING)
