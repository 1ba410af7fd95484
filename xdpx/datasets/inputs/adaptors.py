"""Inputs over any Python iterable, data loader or generator class, under the names of Pax's adaptors for Lingvo.

Nothing here needs Lingvo: Pax uses these adaptors for any object that produces batches and decides their size.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from xdpx.config.hparams import BaseHParams
from xdpx.datasets.inputs.base_input import BaseInput, State, refused, state_number
from xdpx.datasets.inputs.opening import Opening, ShardBy, listens_to, open_batches, own_state, return_to, seed_field
from xdpx.datasets.inputs.rows import as_batch, copied, join_rows, num_rows, take_rows, with_sample_weights
from xdpx.datasets.inputs.windows import is_end_of_data
from xdpx.utils.nested_map import NestedMap


class LingvoInputAdaptor(BaseInput):
    """Batches of an object that produces them itself; `iter(input)` must yield the same ones every time.

    The position is the number of batches read, and the iterator's own state if it has one. Without that, restoring a
    position means reading up to it again.
    """

    class HParams(BaseInput.HParams):
        """Fields of the adaptor.

        Attributes:
            input: produces batches as dicts of arrays: a template, a class or function (which may take host_index,
                num_hosts, seed and epoch), or anything that can be iterated more than once.
            num_batches: maximum number of batches.
            repeat: start again at the end.
            shard_by: how hosts get different data: 'inner' (`input` takes host_index), 'seed' (each host has its own),
                'batch' (each host gets every n-th batch of the same data). None: the first of these that is possible.
            allow_fixed_file_random_seed: allow a fixed seed of training data in `input`, offset by the host.
        """

        input: Any = None
        num_batches: int | None = None
        repeat: bool = False
        shard_by: ShardBy | None = None
        allow_fixed_file_random_seed: bool = False

    def __init__(self, hparams: BaseHParams) -> None:
        super().__init__(hparams)
        if hparams.input is None:
            problem = "is missing."
            raise refused(hparams, "input", problem, "Give what makes the batches: a template, class or iterable.")
        self._check_batch_size()
        self._seed = self._first_seed()
        self._iterator: Iterator[Any] | None = None
        self._items, self._epoch = 0, 0

    def _check_batch_size(self) -> None:
        if self.hparams.batch_size is not None:
            remedy = "Leave it out, or use LingvoInputAdaptorNewBatchSize to cut batches of this size."
            raise refused(self.hparams, "batch_size", "is set, but what makes the batches decides their size.", remedy)

    # ---- seeds and hosts

    def _first_seed(self) -> int | None:
        """Return the seed for `input`: a fixed one offset by the host, or a random one, which is saved in the state."""
        p = self.hparams
        if "seed" not in listens_to(p.input):
            return None
        fixed = p.input_random_seed or self._inner_seed()
        if not fixed:
            return secrets.randbelow(2**31 - 1) + 1 if p.is_training else 1
        if p.is_training and self._inner_seed() and not p.allow_fixed_file_random_seed:
            problem = f"has the fixed seed {fixed}: after a restart without its state, the same data would be repeated."
            remedy = "Set its seed to 0, which draws a seed and saves it, or allow_fixed_file_random_seed=True."
            raise refused(p, "input", problem, remedy)
        return int(fixed) + (self.host_index if self._shard_by == "seed" else 0)

    def _inner_seed(self) -> int:
        template = self.hparams.input
        name = seed_field(template) if isinstance(template, BaseHParams) else None
        return int(getattr(template, name) or 0) if name else 0

    @property
    def _shard_by(self) -> ShardBy:
        if self.hparams.shard_by is not None:
            return self.hparams.shard_by  # type: ignore[no-any-return]
        if self.num_hosts == 1:
            return "inner"
        accepted = listens_to(self.hparams.input)
        if {"host_index", "num_hosts"} <= accepted:
            return "inner"
        return "seed" if "seed" in accepted and self.hparams.is_training else "batch"

    # ---- batches

    def get_next(self) -> NestedMap:
        """Return the next batch; rows without a weight get the weight 1. Raises StopIteration at the end."""
        return self._next_batch()

    def _next_batch(self) -> NestedMap:
        step = self.num_hosts if self._shard_by == "batch" else 1
        limit = self.hparams.num_batches
        if limit is not None and self._items // step >= limit:
            raise StopIteration
        own = NestedMap()
        for index in range(step):  # raises on all hosts alike if the group is incomplete at the end
            item = self._draw()
            if index == self.host_index % step:
                own = as_batch(item) if index == step - 1 else copied(as_batch(item))
        return with_sample_weights(own)

    def _draw(self) -> Any:
        """Return the next batch of the inner iterator."""
        if self._iterator is None:
            self._iterator = self._open()
        try:
            item = next(self._iterator)
        except Exception as error:
            if not is_end_of_data(error):
                raise
            if not self.hparams.repeat or not self._items:
                raise StopIteration from error
            self._epoch, self._items, self._iterator = self._epoch + 1, 0, None
            return self._draw()
        self._items += 1
        return item

    def _open(self) -> Iterator[Any]:
        opening = Opening(self.host_index, self.num_hosts, self._seed, self._epoch)
        if self._shard_by != "inner":
            opening = opening._replace(host_index=0, num_hosts=1)
        return open_batches(self.hparams.input, opening)

    def reset(self) -> None:
        """Start again from the first batch."""
        super().reset()
        self._iterator, self._items, self._epoch = None, 0, 0

    # ---- position

    def get_state(self) -> State:
        """Return the number of batches read in this epoch, the epoch, the seed, and the iterator's state if any."""
        state: State = {"items": self._items, "epoch": self._epoch, "seed": self._seed, "hosts": self.num_hosts}
        inner = None if self._iterator is None else own_state(self._iterator)
        return state if inner is None else {**state, "inner": inner}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a position. Raises ValueError for a state of another number of hosts, or if the data are shorter."""
        if state.get("hosts") != self.num_hosts:
            raise ValueError(
                f"{self.name}: the state is of {state.get('hosts')!r} hosts, this one of {self.num_hosts}. What an "
                "iterable gives to each host cannot be divided anew: restart with as many, or use SeqIOInput."
            )
        self.reset()
        self._seed = state["seed"]
        self._epoch, items = state_number(state, "epoch", self), state_number(state, "items", self)
        if not items:
            return
        self._iterator = self._open()
        if "inner" in state:
            return_to(self._iterator, state["inner"])
        elif next(islice(self._iterator, items - 1, None), nothing := object()) is nothing:
            raise ValueError(f"{self.name}: {items} batches were read before, now there are fewer. The data changed.")
        self._items = items

    @property
    def replay(self) -> str:
        """Why a position can only be restored by reading up to it; '' if the iterator has a state of its own."""
        self._iterator = self._iterator or self._open()
        if own_state(self._iterator) is not None:
            return ""
        kind = type(self._iterator).__name__
        return f"its {kind} has no state of its own (get_state and set_state, or state_dict and load_state_dict)"


class LingvoInputAdaptorNewBatchSize(LingvoInputAdaptor):
    """Splits large batches into batches of `batch_size` rows, so that `input` can pack more tightly."""

    class HParams(LingvoInputAdaptor.HParams):
        """Fields of the adaptor.

        Attributes:
            carry_remainder: allow inner batches of any size, and join the remainder of one with the next. Otherwise
                they must be multiples of batch_size.
        """

        carry_remainder: bool = False

    def __init__(self, hparams: BaseHParams) -> None:
        super().__init__(hparams)
        self._kept: list[tuple[State, NestedMap]] = []  # unfinished batches, and the state before each
        self._used = 0

    def _check_batch_size(self) -> None:
        if self.hparams.batch_size is None:
            raise refused(self.hparams, "batch_size", "is missing.", "Give the number of rows per host in a batch.")

    def get_next(self) -> NestedMap:
        """Return `batch_size` rows. Fewer rows at the end are dropped."""
        size = self.hparams.batch_size
        while sum(num_rows(batch) for _, batch in self._kept) - self._used < size:
            state = super().get_state()
            batch = self._next_batch()
            if num_rows(batch) % size and not self.hparams.carry_remainder:
                problem = f"is {size}, but batches of {num_rows(batch)} rows come in, which is not a multiple of it."
                remedy = "Choose a divisor, or set carry_remainder=True."
                raise refused(self.hparams, "batch_size", problem, remedy)
            self._kept.append((state, copied(batch)))
        joined = join_rows([batch for _, batch in self._kept])
        cut = take_rows(joined, slice(self._used, self._used + size))
        self._used += size
        while self._kept and self._used >= num_rows(self._kept[0][1]):
            self._used -= num_rows(self._kept.pop(0)[1])
        return cut

    def reset(self) -> None:
        """Start again from the first batch."""
        super().reset()
        self._kept, self._used = [], 0

    def get_state(self) -> State:
        """Return the state before the first unfinished inner batch, and the number of its rows that are used."""
        before = self._kept[0][0] if self._kept else super().get_state()
        return {**before, "used": self._used}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a position; a partly used inner batch is read again."""
        super().set_state(state)
        self._used = state_number(state, "used", self)


IterableAdaptor = LingvoInputAdaptor
RebatchAdaptor = LingvoInputAdaptorNewBatchSize
