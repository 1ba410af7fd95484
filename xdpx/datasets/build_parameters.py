"""The parameters of x-prepro: how raw files become a data_dir."""

from __future__ import annotations

from typing import Literal

from xdpx.config.faults import did_you_mean
from xdpx.config.parameters import Parameters, param
from xdpx.datasets.findings.finding import CODES


class BuildParameters(Parameters):
    """Keys of x-prepro, besides those of the loader, the tokenizer, the parser and the processor."""

    data_source: str = param(doc="Folder with the raw files.", path="directory")
    data_files: dict[str, str] | list[str] | str = param(
        "*.txt", doc="Raw files in it: a name or pattern, a list of these, or {file: split}."
    )
    data_dir: str = param(
        doc="Folder to write to; existing splits that are not named here are kept.", path="new_directory"
    )
    vocab_file: str | None = param(None, doc="Existing vocabulary, one token per line; null: built from the data.")
    vocab_subset: str | list[str] = param(
        "*train*",
        doc="Splits whose words make the vocabulary: names or patterns, '*' for all; if none matches, all. Words that "
        "occur only in held-out texts are then unknown, as they will be in use.",
        when=("vocab_file", "is", None),
    )
    threshold: int = param(
        -1, doc="Words must occur more often than this to enter the vocabulary.", when=("vocab_file", "is", None)
    )
    ignore_in_emb: bool = param(
        True, doc="Words with a pretrained embedding need not pass the threshold.", when=("threshold", ">", 0)
    )
    nwords: int = param(
        -1,
        ge=-1,
        doc="Maximum size of the vocabulary, with special tokens; -1 or 0: no limit.",
        when=("vocab_file", "is", None),
    )
    target_map_file: str | None = param(
        None, doc="Existing list of labels, one per line; null: made from the data.", path="file"
    )
    target_type: Literal["text", "index", "number"] = param(
        "text",
        doc="Labels are words, ordered by frequency; the numbers 0, 1, ... in their order; or any numbers, to be "
        "predicted as such (regression).",
        when=("target_map_file", "is", None),
    )
    special_targets: list[str] = param(
        [], doc="Labels that come first, in this order.", when=("target_type", "is", "text")
    )
    pretrained_embeddings: str | None = param(
        None, doc="Word vectors as text (word2vec, GloVe): local, remote or http; writes embeddings.pt."
    )
    check_max_len: bool = param(
        False, doc="Refuse samples longer than max_len, and pass the actual maximum length to training."
    )
    log_file: str | None = param("log.txt", doc="Name of the log file in data_dir; null for none.")
    workers: int = param(1, doc="Processes that share the work; the result does not depend on it.", gt=0)
    save_format: Literal["torch", "jsonl"] = param(
        "torch", doc="Write memory-mapped stores, <split>.pt, or JSON lines, <split>.jsonl."
    )
    seed: int = param(
        1, doc="Seed for embeddings of words without a pretrained one, and for the choice of samples shown.", ge=0
    )
    ignore_findings: list[str] = param(
        [], doc="Names of findings about the data, as printed with them, that are intended and not to be reported."
    )
    processor: str = param(doc="How records become samples.", registry="processor")
    loader: str = param(doc="How rows become records.", registry="loader")

    def conflicts(self) -> list[tuple[str, str]]:
        """Return conflicts: unknown names of findings."""
        found = []
        for code in self.ignore_findings:
            if code not in CODES:
                remedy = did_you_mean(code, CODES, f"There are: {', '.join(CODES)}.")
                found.append(("ignore_findings", f"'{code}' is not the name of a finding. {remedy}"))
        return found
