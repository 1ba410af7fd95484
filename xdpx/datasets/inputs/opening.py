"""Open users' data (a template, a class, a function, a loader, a list) as an iterator of batches."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from xdpx.config.faults import refusal
from xdpx.config.hparams import BaseHParams
from xdpx.datasets.inputs.states import from_json, to_json
from xdpx.datasets.inputs.windows import is_end_of_data

ShardBy = Literal["inner", "seed", "batch"]
"""How hosts get different data: by the data object itself, which gets its host index; by a separate seed for each host;
or by the adaptor, which takes every n-th batch for each host."""

SEED_FIELDS = ("file_random_seed", "random_seed", "seed")
_GETTERS = ("get_next", "GetPreprocessedInputBatch")


class Opening(NamedTuple):
    """Arguments for an object that is opened, of which it gets those that it accepts.

    Attributes:
        host_index: of this host, from 0.
        num_hosts: number of hosts.
        seed: of the order; None if none was chosen.
        epoch: number of times that the data were read before.
    """

    host_index: int
    num_hosts: int
    seed: int | None
    epoch: int

    def for_keywords(self) -> dict[str, Any]:
        """Return the keyword arguments that functions and classes may take."""
        named = {"host_index": self.host_index, "num_hosts": self.num_hosts, "epoch": self.epoch}
        return named if self.seed is None else {**named, "seed": self.seed}


def open_batches(thing: object, opening: Opening) -> Iterator[Any]:
    """Return an iterator over the batches of an object, from the first one.

    Args:
        thing: a template (built, with its seed field set), a class or function (called with those of host_index,
            num_hosts, seed and epoch that it takes), or anything that can be iterated more than once.
        opening: the arguments.

    Raises:
        ConfigError: it cannot be iterated, or only once.
    """
    if isinstance(thing, BaseHParams):
        field = seed_field(thing)
        if field is not None and opening.seed is not None:
            thing = thing.clone().set(**{field: opening.seed})
        return _iterator(thing.Instantiate())
    if callable(thing) and not hasattr(thing, "__iter__") or isinstance(thing, type):
        asked = listens_to(thing)
        return _iterator(thing(**{key: value for key, value in opening.for_keywords().items() if key in asked}))
    if isinstance(thing, Iterator):
        problem = f"is a {type(thing).__name__}, which can be read only once, so a job could not resume in it."
        remedy = "Give the function or class that makes it: input=make_batches, not input=make_batches()."
        raise refusal("input", problem, remedy)
    return _iterator(thing)


def listens_to(thing: object) -> frozenset[str]:
    """Return which of host_index, num_hosts, seed and epoch a class, function or template takes."""
    known = {"host_index", "num_hosts", "seed", "epoch"}
    if isinstance(thing, BaseHParams):
        return frozenset({"seed"} if seed_field(thing) else ())
    if not callable(thing) or (hasattr(thing, "__iter__") and not isinstance(thing, type)):
        return frozenset()
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return frozenset(known)
    return frozenset(parameter.name for parameter in parameters) & known


def seed_field(template: BaseHParams) -> str | None:
    """Return the name of the seed field of a template, None if it has none."""
    names = {name for name, _ in template.fields_and_values()}
    return next((name for name in SEED_FIELDS if name in names), None)


def _iterator(thing: object) -> Iterator[Any]:
    if isinstance(thing, Iterable):
        return iter(thing)
    getter = next((getattr(thing, name) for name in _GETTERS if hasattr(thing, name)), None)
    if getter is None:
        problem = f"is a {type(thing).__name__}, which yields no batches."
        raise refusal("input", problem, "Give something that can be iterated, or that has get_next().")
    return _calls(getter)


def _calls(getter: Callable[[], Any]) -> Iterator[Any]:
    """Yield the results of repeated calls until the end of the data."""
    while True:
        try:
            item = getter()
        except Exception as error:
            if is_end_of_data(error):
                return
            raise
        yield item


_STATES = (("get_state", "set_state"), ("state_dict", "load_state_dict"))


def own_state(iterator: object) -> Any:
    """Return the iterator's own state in JSON-serialisable form; None if it has none, or none that is serialisable."""
    names = _state_names(iterator)
    if names is None:
        return None
    try:
        return to_json(getattr(iterator, names[0])())
    except TypeError:
        return None


def return_to(iterator: object, state: object) -> None:
    """Restore a state of an iterator that `own_state` returned. Raises ValueError if it has no method for it."""
    names = _state_names(iterator)
    if names is None:
        raise ValueError(f"The state belongs to an iterator that saves its own; a {type(iterator).__name__} does not.")
    getattr(iterator, names[1])(from_json(state))


def _state_names(iterator: object) -> tuple[str, str] | None:
    """Return the names of the methods that get and set a state: ours and grain's, or torch's; None without them."""
    return next((names for names in _STATES if all(hasattr(iterator, name) for name in names)), None)
