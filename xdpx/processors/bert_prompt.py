"""The processor for prompts: a text inside a template with masks, and the words that represent each class there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import refusal
from xdpx.config.parameters import param
from xdpx.processors.base import Batch, with_targets
from xdpx.processors.bert import BertProcessor
from xdpx.processors.randomness import below, bits, key
from xdpx.processors.samples import Column, Ragged, Samples
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.utils import io

TEXT, BLANK = "[TEXT]", "[MASK]"


class BertPromptSingleProcessor(BertProcessor):
    """[CLS] template [SEP]: batches {input_ids, attention_mask, masked_positions}, target, and verbalizers (C, L).

    Source: Schick and Schuetze, EACL 2021 (PET), section 3; soft prompts as in Liu et al., "GPT Understands, Too",
    2021: tokens [unused1], [unused2], ... in front, whose embeddings are trained.
    """

    learns_labels: ClassVar[bool] = True

    class Parameters(BertProcessor.Parameters):
        """The template, and the tokens of each class."""

        label_length: int = param(2, doc="Number of masks in a row, i.e. maximum tokens that represent a class.", ge=1)
        hard_templates: list[str] | None = param(
            None,
            doc="Templates, drawn again for each text in each epoch; the first is used for scoring. Tokens of the "
            "vocabulary separated by spaces, including [TEXT] and one [MASK] for all masks; null: [MASK] [TEXT].",
        )
        soft_prompt_length: int | None = param(None, doc="Number of [unusedN] tokens in front; null: none.", ge=0)
        labels_ext: str | None = param(
            None,
            doc="File with the tokens of each class, a line per class in the order of the target map.",
            path="file",
        )
        mask_index: int | None = param(None, doc="Id of [MASK]; from the vocabulary.", ge=0)

        def conflicts(self) -> list[tuple[str, str]]:
            """Return conflicts: templates without exactly one [TEXT] and one [MASK]."""
            found = super().conflicts()
            for template in self.hard_templates or []:
                words = template.split()
                if words.count(TEXT) != 1 or words.count(BLANK) != 1:
                    found.append(("hard_templates", f"has '{template}'. Write {TEXT} and {BLANK} once each."))
            return found

    special_words: ClassVar[tuple[str, ...]] = ("[CLS]", "[SEP]", BLANK)
    text_fields: ClassVar[tuple[str, ...]] = ("tokens",)
    schema: ClassVar[dict[str, str]] = {"input_ids": "ragged int32"}
    num_special: ClassVar[int] = 2

    def __init__(self, parameters: Parameters, *, vocabulary: Vocabulary | None = None) -> None:
        super().__init__(parameters, vocabulary=vocabulary)
        self.mask_index = self._token_index("mask_index", parameters.mask_index, BLANK)
        soft = [f"[unused{number}]" for number in range(1, (parameters.soft_prompt_length or 0) + 1)]
        templates = parameters.hard_templates or [f"{BLANK} {TEXT}"]
        self._frames = [self._frame([*soft, *template.split()]) for template in templates]
        self._room -= max(len(before) + len(after) for before, after in self._frames)
        if self._room < 1:
            problem = f"is {parameters.max_len}, which leaves no room for a text inside the template."
            raise refusal("max_len", problem, "Raise it, or shorten hard_templates.")
        around = [self.num_special + len(before) + len(after) for before, after in self._frames]
        self._around = np.array(around)  # tokens of each template
        self._verbalizers: NDArray[np.int64] | None = None

    def meta(self) -> dict[str, Any]:
        """Return what training inherits, including the id of the mask token."""
        return {**super().meta(), "mask_index": self.mask_index}

    def numerize_many(
        self, fields: Mapping[str, Ragged], targets: NDArray[np.int64] | None
    ) -> tuple[dict[str, Column], NDArray[np.int64]]:
        """Return samples of texts that are cut to fit into the longest template, which `collate` adds later."""
        tokens = fields["tokens"].cut(self._room)
        around = self.num_special + max(len(before) + len(after) for before, after in self._frames)
        return with_targets({"input_ids": tokens, "length": tokens.lengths + around}, targets)

    def collate(
        self, samples: Samples, *, epoch: int = 0, seed: int = 0, training: bool = False, pad_multiple: int = 1
    ) -> Batch:
        """Return a padded batch of texts in templates.

        `masked_positions` (B * L,) are ascending flat indices into (B * T,); `verbalizers` (C, L) are the token ids of
        each class, followed by -1 if there are fewer than L.
        """
        texts = samples.ragged("input_ids")
        chosen = self._choose(samples, seed=seed, epoch=epoch) if training else np.zeros(len(texts), np.int64)
        lengths = texts.lengths + self._around[chosen]
        width = self._width(lengths, pad_multiple=pad_multiple)
        ids, mask = np.full((len(texts), width), self.pad_index, np.int64), np.arange(width) < lengths[:, None]
        for number, frame in enumerate(self._frames):
            rows = np.flatnonzero(chosen == number)
            ids[rows] = self._in_frame(texts.take(rows), frame, width)
        blanks = self._first_blanks(texts, chosen)[:, None] + np.arange(self.parameters.label_length)
        net_input = {
            "input_ids": ids,
            "attention_mask": mask,
            "masked_positions": (blanks + width * np.arange(len(texts))[:, None]).ravel(),
        }
        return {**self._batch(samples, net_input, int(mask.sum())), "verbalizers": self.verbalizers}

    @property
    def verbalizers(self) -> NDArray[np.int64]:
        """The token ids of each class, (C, L), read on first use, because preprocessing does not need them."""
        if self._verbalizers is None:
            self._verbalizers = self._read_verbalizers()
        return self._verbalizers

    def _rows(self, batch: Mapping[str, Any], start: int, stop: int) -> Batch:
        length, net_input = self.parameters.label_length, batch["net_input"]
        width = net_input["input_ids"].shape[1]
        cut = {"net_input": {**net_input, "masked_positions": np.zeros(len(batch["id"]))}}
        found = super()._rows({**batch, **cut}, start, stop)
        places = net_input["masked_positions"][start * length : stop * length] - start * width
        found["net_input"]["masked_positions"] = places
        return {**found, "verbalizers": batch["verbalizers"]}

    def _choose(self, samples: Samples, *, seed: int, epoch: int) -> NDArray[np.int64]:
        return below(bits(key(seed, epoch), samples.ids), len(self._frames))

    def _frame(self, words: list[str]) -> tuple[list[int], list[int]]:
        """Return the ids of a template before and after the text, including all masks."""
        blanks = [self.mask_index] * self.parameters.label_length
        ids = [
            index
            for word in words
            for index in ([-1] if word == TEXT else blanks if word == BLANK else [self._id(word)])
        ]
        place = ids.index(-1)
        return ids[:place], ids[place + 1 :]

    def _in_frame(self, texts: Ragged, frame: tuple[list[int], list[int]], width: int) -> NDArray[np.int64]:
        """Return padded rows (n, width): [CLS], the part before the text, text, the part after it, [SEP]."""
        before, after = [self.cls_index, *frame[0]], [*frame[1], self.sep_index]
        ids = np.full((len(texts), width), self.pad_index, np.int64)
        ids[:, : len(before)] = before
        place = np.arange(width) - len(before)
        ids[(place >= 0) & (place < texts.lengths[:, None])] = texts.values
        rows = np.arange(len(texts))[:, None]
        ids[rows, len(before) + texts.lengths[:, None] + np.arange(len(after))] = after
        return ids

    def _first_blanks(self, texts: Ragged, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position of the first mask of each row, (B,)."""
        mask = self.mask_index
        # Of each template without the text: the position of its first mask, and whether that is behind the text.
        blanks = [([*before, *after].index(mask), int(mask not in before)) for before, after in self._frames]
        first, behind = np.array(blanks).T
        places: NDArray[np.int64] = 1 + first[chosen] + behind[chosen] * texts.lengths
        return places

    def _id(self, word: str) -> int:
        found = self.vocabulary.find(word) if self.vocabulary is not None else None
        if found is None:
            problem = f"has '{word}', which the vocabulary lacks."
            raise refusal("hard_templates", problem, "Write tokens of vocab.txt, or add it.")
        return found

    def _read_verbalizers(self) -> NDArray[np.int64]:
        path, length = self.parameters.labels_ext, self.parameters.label_length
        if path is None:
            problem = "is missing: nothing says which tokens represent a class."
            raise refusal("labels_ext", problem, "Name a file with a line of tokens per class.")
        with io.open(path) as lines:
            words = [line.split() for line in lines if line.strip()]
        classes = self.parameters.num_classes
        if (classes is not None and len(words) != classes) or any(len(each) > length for each in words):
            problem = f"is {path}, with {len(words)} lines of up to {max(map(len, words), default=0)} tokens."
            remedy = f"Write one line for each of the {classes} classes, of at most label_length ({length}) tokens."
            raise refusal("labels_ext", problem, remedy)
        return np.array([[self._id(word) for word in each] + [-1] * (length - len(each)) for each in words], np.int64)
