"""The map of labels to classes: `target_map.txt`, one label per line, whose line number (from 0) is its class."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, did_you_mean
from xdpx.tokenizers.vocabulary import lines_of
from xdpx.utils import commit, io

LARGEST = float(np.finfo(np.float32).max)

UNKNOWN = -1
"""The class of a label that is not in the map."""

_LINE_BREAK = re.compile(r"\s*[\r\n]\s*")


class TargetMap:
    """Labels as written in the data, and their classes. Labels that differ only in case are the same.

    Attributes:
        labels: all labels; the index is the class.
    """

    def __init__(self, labels: Iterable[str]) -> None:
        self.labels = [on_one_line(label) for label in labels]
        self._classes = {folded(label): index for index, label in enumerate(self.labels)}

    @classmethod
    def read(cls, path: str) -> TargetMap:
        """Return the map in a label file.

        Raises:
            ConfigError: the file is not UTF-8 text, is empty, or contains a label twice.
        """
        try:
            with io.open(path, "r", encoding="utf-8-sig", newline="") as file:
                found = cls(lines_of(file.read()))
        except UnicodeDecodeError as error:
            raise _refuse(path, f"is not UTF-8 text ({error.reason}).", "Give one label per line.") from error
        twice = [label for index, label in enumerate(found.labels) if found.find(label) != index]
        if twice:
            raise _refuse(path, f"holds '{twice[0]}' twice (case does not count).", "Give each label once.")
        if not found.labels:
            raise _refuse(path, "contains no label.", "Give one label per line.")
        return found

    @classmethod
    def by_frequency(
        cls, counts: Mapping[str, int], special: Sequence[str] = (), *, source: str = THIS_RUN
    ) -> TargetMap:
        """Return a map with labels in order of frequency, ties by alphabet, after the `special` ones as given.

        Args:
            counts: count of each label, each in a single spelling (see `by_writing`).
            special: labels that come first.
            source: of the labels, for messages.

        Raises:
            ConfigError: a special label does not occur.
        """
        written = {folded(label): label for label in counts}
        missing = [label.strip() for label in special if folded(label) not in written]
        if missing:
            remedy = did_you_mean(missing[0], counts, f"The labels are: {_listed(counts)}.")
            raise ConfigError(source, [Fault("special_targets", f"no sample is labelled '{missing[0]}'.", remedy)])
        first = list(dict.fromkeys(written[folded(label)] for label in special))
        return cls([*first, *sorted(set(counts) - set(first), key=lambda label: (-counts[label], folded(label)))])

    @classmethod
    def by_number(cls, labels: Iterable[str], *, source: str = THIS_RUN) -> TargetMap:
        """Return a map in which each label is the number of its class: label `10` is class 10.

        Args:
            labels: all that occur.
            source: of the labels, for messages.

        Raises:
            ConfigError: the labels are not 0, 1, ... without a gap.
        """
        found = set(labels)
        wanted = [str(number) for number in range(len(found))]
        if found == set(wanted):
            return cls(wanted)
        wrong = sorted(found - set(wanted), key=lambda label: (len(label), label))
        absent = [label for label in wanted if label not in found]
        problem = f"is 'index', so labels must be 0 to {len(found) - 1}; found '{wrong[0]}', but no '{absent[0]}'."
        remedy = "Use target_type: text, or give a target_map_file."
        raise ConfigError(source, [Fault("target_type", problem, remedy)])

    @classmethod
    def by_value(cls, labels: Iterable[str], *, source: str = THIS_RUN) -> TargetMap:
        """Return a map of numeric labels in order of their values; two spellings of a number are two labels.

        Args:
            labels: all that occur.
            source: of the labels, for messages.

        Raises:
            ConfigError: a label is not a finite number of float32.
        """
        found = sorted(set(labels))
        wrong = [label for label in found if number_of(label) is None]
        if wrong:
            more = f", nor {len(wrong) - 1:,} other labels" if len(wrong) > 1 else ""
            problem = f"is 'number', but '{wrong[0]}' is not a number{' within float32' * _is_large(wrong[0])}{more}."
            comma = "," in wrong[0] and number_of(wrong[0].replace(",", ".", 1)) is not None
            fix = "write a decimal point, and nothing between thousands" if comma else "fix the files"
            raise ConfigError(source, [Fault("target_type", problem, f"Use target_type: text, or {fix}.")])
        return cls(sorted(found, key=lambda label: (number_of(label) or 0.0, label)))

    def __len__(self) -> int:
        return len(self.labels)

    def __contains__(self, label: object) -> bool:
        return isinstance(label, str) and folded(label) in self._classes

    def find(self, label: str) -> int | None:
        """Return the class of a label, or None if it is unknown."""
        return self._classes.get(folded(label))

    def classes(self, labels: Sequence[str], *, unknown: int = UNKNOWN) -> NDArray[np.int64]:
        """Return the class of each label, `unknown` for those not in the map, int64 (N,)."""
        known = {label: self._classes.get(folded(label), unknown) for label in set(labels)}
        return np.fromiter((known[label] for label in labels), np.int64, len(labels))

    @property
    def text(self) -> str:
        """The content of `target_map.txt`."""
        return "".join(f"{label}\n" for label in self.labels)

    @property
    def digest(self) -> str:
        """SHA-256 of `text`: maps with the same digest assign the same classes to all labels."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    def write(self, path: str) -> None:
        """Write `target_map.txt` atomically to `path`."""
        commit.write_text(path, self.text)


def number_of(label: str) -> float | None:
    """Return a label as a finite number; None if it is not one, or too large for float32, in which models compute."""
    try:
        value = float(label)
    except ValueError:
        return None
    if "_" in label:  # which Python reads as a separator of thousands: 1_2 would be 12
        return None
    return value if abs(value) <= LARGEST else None


def _is_large(label: str) -> bool:
    """Return whether a label is a number, but not one of float32."""
    try:
        return abs(float(label)) > LARGEST
    except ValueError:
        return False


def on_one_line(label: str) -> str:
    """Return a label as a line of the file: without white space around it, its line breaks replaced by spaces."""
    return _LINE_BREAK.sub(" ", label.strip())


def folded(label: str) -> str:
    """Return the form in which labels are compared: `positive` for `Positive ` and `positive`."""
    return on_one_line(label).lower()


def by_writing(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """Return {most frequent spelling of a label: {spelling: count}}."""
    found: dict[str, dict[str, int]] = {}
    for label in sorted(counts, key=lambda label: (-counts[label], label)):
        found.setdefault(folded(label), {})[label] = counts[label]
    return {next(iter(writings)): writings for writings in found.values()}


def _listed(labels: Iterable[str]) -> str:
    names = sorted(labels)
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def _refuse(path: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError(path, [Fault("target_map_file", problem, remedy)])
