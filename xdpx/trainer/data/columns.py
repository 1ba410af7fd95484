"""Remove the columns of a dataset that the model does not accept.

Texts and indices beside the tokens would otherwise be passed to the model. Removed columns are logged once. A user's
collator that needs one of these columns gets all of them, and so does a model that accepts any keyword.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from xdpx.logger import log
from xdpx.trainer.data.collation import LABEL, LABEL_IDS, LABELS, NUMBERED
from xdpx.trainer.data.plan import length
from xdpx.trainer.data.randomness import untouched

LABEL_COLUMNS = (LABEL, LABEL_IDS)
"""Columns that the default collator turns into `labels`."""

WRAPPED = ("module", "_orig_mod", "base_model", "model")
"""Attributes in which wrappers (DDP, torch.compile, PEFT, users' own) keep the wrapped model."""

OWN_COLLATORS = ("transformers.", "xdpx.")
"""Collators of these packages accept all columns, and need none that the model does not accept."""

_SAID: set[tuple[str, ...]] = set()


def wanted_columns(model: Any, label_names: Sequence[str]) -> list[str] | None:
    """Return the names of the arguments of a model's forward and of labels; None if it accepts any.

    If forward has only `*args, **kwargs`, the model inside a wrapper is inspected. A `**kwargs` beside named arguments
    is ignored: what it accepts cannot be known.
    """
    seen: set[int] = set()
    while model is not None and id(model) not in seen:
        seen.add(id(model))
        if callable(getattr(model, "get_base_model", None)):
            model = model.get_base_model()
        parameters = inspect.signature(getattr(model, "forward", model)).parameters.values()
        names = [each.name for each in parameters if each.kind not in {each.VAR_POSITIONAL, each.VAR_KEYWORD}]
        if names:
            return list(dict.fromkeys([*names, *LABEL_COLUMNS, *label_names]))
        model = next((inner for name in WRAPPED if callable(inner := getattr(model, name, None))), None)
    return None


def without(dataset: Any, names: Sequence[str]) -> Any:
    """Return a `datasets` dataset without some columns; any other dataset, and one with a transform, unchanged.

    A transform may need the columns. Samples of these are cut by `Trimmed` when they are collated.
    """
    return dataset.remove_columns(list(names)) if names and _can_be_cut(dataset) else dataset


def trimmed(
    dataset: Any,
    collator: Callable[[Any], Any],
    wanted: Sequence[str] | None,
    *,
    description: str = "training",
    model_name: str = "the model",
) -> tuple[Any, Callable[[Any], Any]]:
    """Return a dataset and a collator that only let wanted columns through; log once what is removed.

    Args:
        dataset: the source of the samples.
        collator: makes batches of them.
        wanted: names from `wanted_columns`; None: all.
        description: which data it is, for messages.
        model_name: class of the model, for messages.

    Raises:
        ValueError: no column would be left.
    """
    _warn_of_two_labels(getattr(dataset, "column_names", None) or (), description)
    if wanted is None:
        return dataset, collator
    if not _can_be_cut(dataset):
        return dataset, Trimmed(collator, wanted, description=description, model_name=model_name)
    names = _unused(dataset, dataset.column_names, wanted, collator, model_name)
    if names:
        _say(names, description, model_name)
    if _leaves_text_out(collator):
        kinds = getattr(dataset, "features", None) or {}
        _warn_of_text([name for name in wanted if getattr(kinds.get(name), "dtype", "") == "string"], description)
    return without(dataset, names), collator


def _warn_of_two_labels(columns: Collection[str], description: str) -> None:
    """Warn of columns that all become `labels`: which of them is trained on depends on the collator."""
    given = [name for name in (*LABEL_COLUMNS, LABELS) if name in columns]
    if len(given) > 1:
        log.warning(
            f"{description} data: has {' and '.join(given)}, of which the data_collator makes one the labels. Remove "
            "what is not meant, or rename it.",
            once=True,
        )


def _leaves_text_out(collator: object) -> bool:
    return "default_data_collator" in str(getattr(collator, "__name__", "")) and _is_shipped(collator)


def _warn_of_text(names: Sequence[str], description: str) -> None:
    """Warn of columns that the model takes, but that are text, which is left out of batches."""
    if names := [name for name in names if name not in (*LABEL_COLUMNS, LABELS)]:  # of those the collator tells
        log.warning(
            f"{description} data: {', '.join(names)}: the model takes it, but it is text, which is left out of "
            "batches. Convert it to numbers, or remove it.",
            once=True,
        )


class Trimmed:
    """A collator that passes on only wanted columns, or all of them once the inner collator has needed another one.

    Args:
        collator: makes the batch.
        wanted: names that are passed on.
        description: which data it is, for messages.
        model_name: class of the model, for messages.
    """

    def __init__(
        self,
        collator: Callable[[Any], Any],
        wanted: Collection[str],
        *,
        description: str = "training",
        model_name: str = "the model",
    ) -> None:
        self.collator, self.wanted = collator, frozenset(wanted)
        self.description, self.model_name = description, model_name
        self.lets_all_through = False
        self._may_lose_text = _leaves_text_out(collator)

    def __call__(self, features: list[Any]) -> Any:
        """Return a batch of samples; samples that are not dicts are passed on unchanged."""
        if self.lets_all_through:
            return self.collator(features)
        if self._may_lose_text and isinstance(features[0], Mapping):
            self._may_lose_text = False
            texts = [name for name, value in features[0].items() if isinstance(value, str) and name in self.wanted]
            _warn_of_text(texts, self.description)
        try:
            whole = self.wanted.issuperset  # asked here, as a call per sample would cost more than the cut
            return self.collator([row if type(row) is dict and whole(row) else self._cut(row) for row in features])
        except KeyError as error:
            missing = error.args[0] if error.args else None
            all_have_it = all(isinstance(row, Mapping) and missing in row for row in features)
            if _is_shipped(self.collator) or missing in self.wanted or not all_have_it:
                raise
        _say_needed(missing)
        self.lets_all_through = True
        return self.collator(features)

    def _cut(self, row: object) -> Any:
        if not isinstance(row, dict) or self.wanted.issuperset(row):
            return row
        kept = {name: value for name, value in row.items() if name in self.wanted}
        if not kept:
            raise ValueError(_nothing_left(row, self.wanted, self.model_name))
        _say([name for name in row if name not in kept], self.description, self.model_name)
        return kept


def _unused(
    dataset: object, columns: Sequence[str], wanted: Sequence[str], collator: object, model_name: str
) -> list[str]:
    unused = [name for name in columns if name not in wanted]
    if not unused or _needed_by(collator, dataset, unused):
        return []
    if len(unused) == len(columns):
        raise ValueError(_nothing_left(columns, wanted, model_name))
    return unused


def _can_be_cut(dataset: object) -> bool:
    how = getattr(dataset, "format", None)
    # Samples pass through a user's function (`with_transform`) when they are read.
    transformed = isinstance(how, Mapping) and how.get("type") == "custom"
    # Streams keep their columns, as in the original: removing them would rebuild the pipeline of the stream.
    return callable(getattr(dataset, "remove_columns", None)) and length(dataset) is not None and not transformed


def _needed_by(collator: Any, dataset: Any, unused: list[str]) -> bool:
    """Return whether a user's collator needs an unused column, by calling it with the first sample."""
    if collator is None or not length(dataset) or _is_shipped(collator):
        return False
    with untouched():
        row = dataset[0]
        try:
            collator([{name: value for name, value in row.items() if name not in unused}])
        except KeyError as error:
            missing = error.args[0] if error.args else None
        except Exception:  # it may fail with a single sample; only a missing column matters
            return False
        else:
            return False
    if missing not in unused:
        return False
    _say_needed(missing)
    return True


def _say_needed(name: object) -> None:
    log.info(
        f"remove_unused_columns: the data_collator uses '{name}', which the model does not take. All columns are "
        "passed to the collator."
    )


def _is_shipped(collator: object) -> bool:
    kind = collator if inspect.isfunction(collator) else type(collator)
    return f"{getattr(kind, '__module__', '')}.".startswith(OWN_COLLATORS)


def _say(names: list[str], description: str, model_name: str) -> None:
    said = (description, model_name, *names)
    if said in _SAID:
        return
    _SAID.add(said)
    log.info(
        f"Columns of the {description} data that {model_name}.forward does not take are left out: {', '.join(names)}. "
        "Set remove_unused_columns=False to keep them."
    )


def note_left_out(error: KeyError) -> None:
    """Add to an error of a user's loss that the column it looks for was left out, if it was."""
    missing = error.args[0] if error.args else None
    if any(missing in names for _, _, *names in _SAID):
        error.add_note(
            f"remove_unused_columns: the data has '{missing}', but the model's forward does not take it, so it was "
            "left out. Set remove_unused_columns=False, and take from `inputs` what is not for the model."
        )


@contextmanager
def texts_named(dataset: Any, collator: Any) -> Generator[None]:
    """Add to an error of a collator that pads with a tokenizer which columns are text: it says that they are nested."""
    try:
        yield
    except ValueError as error:
        inner, wanted = getattr(collator, "collator", collator), getattr(collator, "wanted", None)
        if _is_shipped(inner) and hasattr(inner, "tokenizer"):
            for name, value in _texts_of(dataset).items():
                if wanted is None or name in wanted:
                    error.add_note(_text(name, value))
        raise


def _texts_of(dataset: Any) -> dict[str, str]:
    """Return the columns of text with their first values; none of what cannot be looked at after an error."""
    with untouched(), suppress(Exception):
        return {name: value for name, value in dict(dataset[0]).items() if isinstance(value, str)}
    return {}


def _text(name: str, value: str) -> str:
    advice = (
        f"{NUMBERED}." if name in (*LABEL_COLUMNS, LABELS) else "Leave the column out: the model takes only tokens."
    )
    return f"{name}: is text ({value!r:.40}), of which no tensor can be made. {advice}"


def _nothing_left(columns: Collection[str], wanted: Collection[str], model_name: str) -> str:
    return (
        f"remove_unused_columns: none of the columns ({', '.join(map(str, columns))}) is an argument of "
        f"{model_name}.forward, which takes {', '.join(sorted(wanted))}. Tokenize the data, rename its columns, or set "
        "remove_unused_columns=False if your data_collator or the dataset makes what the model needs."
    )
