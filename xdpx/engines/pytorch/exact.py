"""Bit-identical results for a row, whatever rows it is batched with: use only batch sizes found to give the same bits.

A library's result for one row of a matrix product may depend, in the last bits, on the number of rows and on the row's
position: few rows use a different kernel. So for each width of batch it is found out once which numbers of rows give
the same bits as a large one, at all positions. A batch is split into pieces of those sizes, and the last piece is
padded with copies. The caller must make sure that each row has the width in a batch that it would have alone.

Differences inside the network are rounded away in most outputs: in a regression to 0.5 they showed in one row of eight.
So the outputs of the network's parts are compared as well, by checksums, for all trial rows. And few values hide them:
a convolution over the only word of a text gave the same bits for one row as for many, over several words it did not.
So trial rows are texts of random words and lengths, whatever batch happens to be the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.engines.base import Task

MOST_ROWS = 32
MOST_TOKENS = 1024
"""Largest pieces, in rows and tokens, that a batch is split into: larger ones are not faster on a CPU."""
ENOUGH_TOKENS = 128
ENOUGH_PRODUCTS = 2.2e9
"""On a CPU, pieces with this many multiplications per thread are large enough, if they have at least that many tokens:
a BERT of 6 layers, 384 wide, is as fast with pieces of 200 tokens as with 1024, and the trial takes a fifth of the
time."""

Inputs = Mapping[str, Any]
Rows = Mapping[Any, Tensor]
Forward = Callable[..., Any]
Leaves = list[Any]


class Shape(NamedTuple):
    """What is known about batches of one width.

    Attributes:
        counts: numbers of rows that give the same bits, largest first.
        of_rows: for each output of the network, in order, whether it has one entry per row.
        of_any_ids: whether the trial rows had all ids that the network knows, not only such as occurred in a batch.
    """

    counts: tuple[int, ...]
    of_rows: tuple[bool, ...]
    of_any_ids: bool


class ExactRows:
    """Computes rows in pieces of such sizes that each row gets the same bits in every batch.

    Attributes:
        seconds: time spent on finding the sizes.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._shapes: dict[tuple[Any, ...], Shape] = {}
        self._was_called = False

    @contextmanager
    def inside(self, task: Task) -> Generator[None]:
        """Make a task compute this way inside the block: its network and its `row_functions`.

        Raises:
            ConfigError: an input or output of the network does not have one row per sample, or only parts of the
                network are called.
        """
        self._was_called = False
        with ExitStack() as stack:
            stack.enter_context(self._replaced(task.model, "forward"))
            for owner, name in task.row_functions():
                stack.enter_context(self._replaced(owner, name))
            yield
        if not self._was_called:
            raise refusal(f"'{type(task.model).__name__}' is called by its parts, not as a whole.")

    @contextmanager
    def _replaced(self, owner: object, name: str) -> Generator[None]:
        function, before = getattr(owner, name), vars(owner).get(name)

        @wraps(function)
        def exactly(*given: Any, **named: Any) -> Any:
            self._was_called |= name == "forward"
            return self._computed(owner, function, given, named)

        vars(owner)[name] = exactly
        try:
            yield
        finally:
            del vars(owner)[name]
            if before is not None:
                vars(owner)[name] = before

    def _computed(self, owner: object, function: Forward, given: Sequence[Any], named: Inputs) -> Any:
        what = type(owner).__name__
        inputs: dict[Any, Any] = {**dict(enumerate(given)), **dict(named)}
        if not _are_rows(inputs):
            raise refusal(f"'{what}' reads inputs that do not have a row for each sample.")

        def of(rows: Rows) -> tuple[Leaves, Any]:
            placed = [rows[index] for index in range(len(given))]
            return pytree.tree_flatten(function(*placed, **{name: rows[name] for name in named}))

        rows = len(next(iter(inputs.values())))
        key = (what, *((name, value.shape[1:], value.dtype) for name, value in inputs.items()))
        shape = self._shapes.get(key)
        if shape is None:
            with_ids = (*key, *_bits_of_ids(inputs))  # waits for the device
            shape = self._shapes.get(with_ids)
            if shape is None:
                begun = time.perf_counter()
                shape = _found_shape(owner, lambda given: of(given)[0], inputs, rows)
                self._shapes[key if shape.of_any_ids else with_ids] = shape
                self.seconds += time.perf_counter() - begun
        parts, start = list[Leaves](), 0
        form: Any = None
        while start < rows:
            count = next_count(shape.counts, rows - start)
            kept = min(count, rows - start)
            leaves, form = of(_piece(inputs, start, kept, count))
            parts.append([leaf[:kept] if own else leaf for leaf, own in zip(leaves, shape.of_rows, strict=True)])
            start += kept
        outputs = zip(zip(*parts, strict=True), shape.of_rows, strict=True)
        return pytree.tree_unflatten([torch.cat(each) if own else each[0] for each, own in outputs], form)


def next_count(counts: Sequence[int], left: int) -> int:
    """Return the size of the next piece: with a few rows of padding rather than another piece.

    Args:
        counts: allowed sizes, largest first.
        left: rows still to compute, at least 1.
    """
    above = min((count for count in counts if count >= left), default=0)
    below = max((count for count in counts if count <= left), default=0)
    return above if above and (not below or above - left <= above // 4) else below


def _are_rows(inputs: Rows) -> bool:
    if not inputs or not all(isinstance(value, Tensor) and value.dim() for value in inputs.values()):
        return False
    return len({len(value) for value in inputs.values()}) == 1


def _piece(inputs: Rows, start: int, kept: int, count: int) -> Rows:
    """Return `kept` rows from `start` on, padded with copies of the last one to `count` rows."""
    if start == 0 and kept == count == len(next(iter(inputs.values()))):
        return dict(inputs)
    places = _places(start, kept, count).tolist()
    return {name: value[places] for name, value in inputs.items()}


def _places(start: int, kept: int, count: int) -> Tensor:
    return start + torch.arange(count).clamp(max=kept - 1)


def _found_shape(owner: object, computed: Callable[[Rows], Leaves], inputs: Rows, rows: int) -> Shape:
    """Find which numbers of rows give the same bits, by trying them on rows made from a batch."""
    width = max(value[0].numel() for value in inputs.values())
    most = MOST_ROWS
    while most > 1 and most * width > _most_tokens(owner, next(iter(inputs.values())).device):
        most //= 2
    trial = _Trial(owner, computed, _trial_rows(inputs, [place % rows for place in range(max(most, 2))]))
    tried = [most >> power for power in range(most.bit_length())]
    expected: list[Tensor] | None = None
    while len(tried) > 1 and (expected := trial.at_all_places(tried[0])) is None:
        tried.pop(0)  # try fewer rows, down to single ones
    counts = tried[:1]
    for count in tried[1:]:
        if expected is None or not trial.gives(expected, count):
            break
        counts.append(count)
    if counts[-1] > 1 and expected is not None and not trial.ignores_others(expected, counts[-1]):
        counts = [1]
    return Shape(tuple(counts), trial.of_rows, trial.of_any_ids)


def _most_tokens(owner: object, device: torch.device) -> int:
    """Return the most tokens a piece may have. It affects bits, so it must not depend on measured times."""
    if device.type != "cpu" or not isinstance(owner, nn.Module):
        return MOST_TOKENS
    matrices = (
        weight.numel()
        for part in owner.modules()
        if not isinstance(part, nn.Embedding)
        for weight in part.parameters(recurse=False)
        if weight.dim() > 1
    )
    enough = ENOUGH_PRODUCTS * torch.get_num_threads() / max(sum(matrices), 1)
    return int(min(max(enough, ENOUGH_TOKENS), MOST_TOKENS))


class _Trial:
    """Computes trial rows in pieces of different sizes, and compares outputs and inner results of the network.

    Attributes:
        of_rows: for each output, whether it has one entry per row.
        of_any_ids: whether the rows have all ids that the network knows, or it reads no ids.
    """

    def __init__(self, owner: object, computed: Callable[[Rows], Leaves], rows: Rows) -> None:
        self._owner, self._computed, self._rows = owner, computed, rows
        self._starts = range(len(next(iter(rows.values()))))
        self._lookups = _Lookups([each for each in _watchable(owner) if isinstance(each, nn.Embedding)])
        one, two = (self._with_sums(torch.arange(count)) for count in (1, 2))
        self.of_any_ids = self._lookups.draw(len(self._starts)) or not any(map(_has_ids, rows.values()))
        self.of_rows = _tell_rows(type(owner).__name__, one[0], two[0])
        self._of_lines = [len(first) * 2 == len(second) for first, second in zip(one[1], two[1], strict=False)]

    def at_all_places(self, count: int) -> list[Tensor] | None:
        """Return the results of all rows in pieces of `count`; None if a row's bits depend on its position."""
        pieces = []
        for start in self._starts[::count]:
            pieces.append(self._given(start, count))
            if not _same(pieces[-1], self._given(start, count, backwards=True)):
                return None
        return [torch.cat(each) for each in zip(*pieces, strict=True)]

    def gives(self, expected: Sequence[Tensor], count: int) -> bool:
        """Return whether all rows get the expected bits in pieces of `count`."""
        return all(
            _same([each[start : start + count] for each in expected], self._given(start, count))
            for start in self._starts[::count]
        )

    def ignores_others(self, expected: Sequence[Tensor], count: int) -> bool:
        """Return whether rows get the expected bits among copies of themselves: not if a network mixes rows."""
        return all(
            _same([each[row : row + 1].expand_as(each[:count]) for each in expected], self._given(row, count, kept=1))
            for row in (0, count - 1)
        )

    def _given(self, start: int, count: int, *, kept: int | None = None, backwards: bool = False) -> list[Tensor]:
        places = _places(start, kept or count, count)
        leaves, sums = self._with_sums(places.flip(0) if backwards else places)
        found = [leaf for leaf, own in zip(leaves, self.of_rows, strict=True) if own]
        found += [each.view(count, -1) for each, own in zip(sums, self._of_lines, strict=False) if own]
        return [each.flip(0) for each in found] if backwards else found

    def _with_sums(self, places: Tensor) -> tuple[Leaves, list[Tensor]]:
        """Return the outputs for some trial rows, and checksums of each row of the outputs of the network's parts."""
        sums: list[Tensor] = []

        def note(_module: nn.Module, _given: object, output: object) -> None:
            for leaf in pytree.tree_leaves(output):
                if isinstance(leaf, Tensor) and leaf.dim() > 1:
                    bits = leaf.float().contiguous().view(torch.int32).flatten(1).long()
                    sums.append((bits * torch.arange(1, 2 * bits.shape[1], 2, device=bits.device)).sum(dim=1))

        with ExitStack() as stack:
            for part in _watchable(self._owner):
                stack.callback(part.register_forward_hook(note).remove)
            stack.enter_context(self._lookups.of(places))
            return self._computed({name: value[places.tolist()] for name, value in self._rows.items()}), sums


class _Lookups:
    """Random ids for the embeddings of a network, which it looks up for trial rows in place of their own.

    Args:
        tables: the embeddings.
    """

    def __init__(self, tables: Sequence[nn.Embedding]) -> None:
        self._tables = tables
        self._noted: list[list[tuple[nn.Embedding, torch.Size]]] = []
        self._drawn: list[Tensor | None] = []

    def draw(self, rows: int) -> bool:
        """Draw ids for each lookup, after a trial with one row and one with two have told which have ids of rows.

        Args:
            rows: number of trial rows.

        Returns:
            Whether ids were drawn for any.
        """
        dice = torch.Generator().manual_seed(2)
        for (table, one), (_, two) in zip(*self._noted, strict=False):
            # Ids of positions, of shape (T,) or (T, T), are shared by all rows.
            of_rows = one[:1] == (1,) and two == (2, *one[1:])
            shape = (rows, *one[1:])
            self._drawn.append(torch.randint(table.num_embeddings, shape, generator=dice) if of_rows else None)
        return any(each is not None for each in self._drawn)

    @contextmanager
    def of(self, places: Tensor) -> Generator[None]:
        """Inside the block, look up the ids drawn for the trial rows at these places; before `draw`, note lookups."""
        drawn, noted = iter(self._drawn), list[tuple[nn.Embedding, torch.Size]]()

        def replace(table: nn.Embedding, given: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            if not given:  # by keyword
                return None
            noted.append((table, given[0].shape))
            ids = next(drawn, None)
            if ids is None or given[0].shape != (len(places), *ids.shape[1:]):
                return None
            return (ids[places].to(given[0]), *given[1:])

        with ExitStack() as stack:
            for table in self._tables:
                stack.callback(table.register_forward_pre_hook(replace).remove)
            yield
        self._noted.append(noted)


def _watchable(owner: object) -> Generator[nn.Module]:
    """Yield the parts of a network that may have hooks: torch's encoder layer computes differently if any inside has.

    Script modules are left out as well, and what is not a network has no parts.
    """
    for part in owner.children() if isinstance(owner, nn.Module) else ():
        if not isinstance(part, nn.TransformerEncoderLayer | torch.jit.ScriptModule):
            yield part
            yield from _watchable(part)


def _has_ids(value: Tensor) -> bool:
    return not value.is_floating_point() and value.dtype != torch.bool


def _bits_of_ids(inputs: Inputs) -> list[int]:
    """Return the number of bits of the largest id of each input that has ids."""
    return [int(value.max()).bit_length() for value in inputs.values() if _has_ids(value) and value.numel()]


def _trial_rows(inputs: Rows, places: Sequence[int]) -> Rows:
    """Return rows of a batch, repeated with random values: a difference in the last bits shows in few rows only."""
    dice = torch.Generator().manual_seed(1)
    share_R = torch.rand(len(places), generator=dice)
    found = {name: value[list(places)] for name, value in inputs.items()}
    for name, value in found.items():
        if value.is_floating_point():
            found[name] = value + torch.randn(value.shape, generator=dice).to(value)
        elif _has_ids(value):  # any id below one that occurs is valid too
            drawn = torch.randint(int(value.max()) + 1, value.shape, generator=dice, dtype=value.dtype)
            found[name] = drawn.to(value.device)
        elif _is_padding(value):
            real_RT = torch.arange(value.shape[1]) <= (share_R * value.shape[1])[:, None]
            found[name] = real_RT.to(value.device) == value[:, :1]
    return found


def _is_padding(mask_RT: Tensor) -> bool:
    """Return whether each row of a mask is that of a text with padding behind it, which all are marked alike."""
    if mask_RT.dim() != 2 or not bool((mask_RT[:, 0] == mask_RT[0, 0]).all()):
        return False
    padding_RT = mask_RT != mask_RT[:, :1]
    return not bool((padding_RT[:, :-1] & ~padding_RT[:, 1:]).any())


def _tell_rows(what: str, one: Leaves, two: Leaves) -> tuple[bool, ...]:
    """Return for each output whether it has one entry per row, from the outputs for one row and for two."""
    found = []
    for first, second in zip(one, two, strict=True):
        is_tensor = isinstance(first, Tensor) and first.dim() > 0
        found.append(is_tensor and len(first) == 1 and len(second) == 2 and first.shape[1:] == second.shape[1:])
        if is_tensor and not found[-1] and first.shape != second.shape:
            raise refusal(f"'{what}' gives outputs that do not have a row for each sample.")
    return tuple(found)


def _same(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Return whether all bits are the same: equal numbers can differ in bits, like 0.0 and -0.0."""
    bits = ([each.contiguous().view(torch.uint8) for each in pair] for pair in zip(one, other, strict=True))
    return all(torch.equal(*pair) for pair in bits)


def refusal(problem: str) -> ConfigError:
    """Return the error for a task that cannot be computed this way."""
    return ConfigError(THIS_RUN, [Fault("exact", f"is true, but {problem}", "Leave exact out.")])
