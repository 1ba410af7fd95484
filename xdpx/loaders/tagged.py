"""Words with a tag each: named entities, parts of speech, slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from xdpx.config.parameters import param
from xdpx.loaders.base import Loader, Records
from xdpx.loaders.parsers.base import BadLine, Rows


class TaggedLoader(Loader):
    """Columns: words with a space between, as many tags with a space between; or words alone. See parser `conll`."""

    marks_words: ClassVar[bool] = True
    keeps_words: ClassVar[bool] = True

    class Parameters(Loader.Parameters):
        """What the tagged loader can be told."""

        parser: str = param("conll", doc="How files are cut into columns.", registry="parser")

    @property
    def several_labels(self) -> bool:
        """A row has a label for each word."""
        return True

    def labels_of(self, target: str) -> list[str]:
        """Return the tag of each word."""
        return target.split()

    def meta(self, labels: Sequence[str]) -> dict[str, Any]:
        """Tell training the names of the tags: entities are read out of them."""
        return {"tags": list(labels)}

    def records(self, rows: Rows, *, labelled: bool) -> Records:
        """Make the records of a block; rows whose words and tags differ in number are bad."""
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
