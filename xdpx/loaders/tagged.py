"""The loader `tagged`: words with one tag each, for named entities, parts of speech, slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from xdpx.config.parameters import param
from xdpx.loaders.base import Loader, Records
from xdpx.loaders.parsers.base import BadLine, Rows


class TaggedLoader(Loader):
    """Columns: words separated by spaces, and as many tags separated by spaces; or only words. See parser `conll`."""

    marks_words: ClassVar[bool] = True
    keeps_words: ClassVar[bool] = True

    class Parameters(Loader.Parameters):
        """Keys of the tagged loader."""

        parser: str = param("conll", doc="How files are split into columns.", registry="parser")

    @property
    def several_labels(self) -> bool:
        """True, because a row has one label per word."""
        return True

    def labels_of(self, target: str) -> list[str]:
        """Return the tag of each word."""
        return target.split()

    def meta(self, labels: Sequence[str]) -> dict[str, Any]:
        """Return the names of the tags, which training needs to extract entities."""
        return {"tags": list(labels)}

    def records(self, rows: Rows, *, labelled: bool) -> Records:
        """Return the records of a block; rows with different numbers of words and tags are bad."""
        found = super().records(rows, labelled=labelled)
        if found.targets is None:
            return found
        texts = found.fields[self.text_fields[0]]
        counts = [(len(text.split()), len(tags.split())) for text, tags in zip(texts, found.targets, strict=True)]
        kept = [index for index, (words, tags) in enumerate(counts) if words == tags]
        if len(kept) == len(counts):
            return found
        bad = [
            BadLine(found.lines[index], f"has {words} words, but {tags} tags")
            for index, (words, tags) in enumerate(counts)
            if words != tags
        ]
        return Records(
            {self.text_fields[0]: [texts[index] for index in kept]},
            [found.targets[index] for index in kept],
            [found.lines[index] for index in kept],
            sorted([*found.bad, *bad]),
        )
