from math import inf, nan

import pytest

from xdpx.utils.decisions import due, is_better, slow_average, updates_of


@pytest.mark.parametrize(("interval", "numbers"), [(3, [3, 6, 9]), (1, [*range(1, 11)]), (-1, []), (0, []), (None, [])])
def test_what_has_an_interval_is_due_at_its_multiples(interval: int | None, numbers: list[int]) -> None:
    assert [number for number in range(1, 11) if due(number, interval)] == numbers


@pytest.mark.parametrize(("score", "best", "ascending", "better"), [
    (2.0, 1.0, True, True), (1.0, 2.0, True, False), (1.0, 2.0, False, True), (1.0, 1.0, True, False),
    (nan, 1.0, True, False), (nan, None, True, False), (-inf, None, True, True), (1.0, -inf, True, True),
    (inf, inf, False, False), (5e-324, 0.0, True, True),
])  # fmt: skip
def test_a_score_is_better_when_it_really_is(score: float, best: float | None, ascending: bool, better: bool) -> None:
    assert is_better(score, best, ascending=ascending) is better


def test_a_score_may_have_to_be_better_by_some_margin() -> None:
    assert is_better(0.9, 0.5, ascending=True, by=0.3)
    assert not is_better(0.9, 0.5, ascending=True, by=0.4)


def test_a_share_of_a_training_is_rounded_up_to_updates() -> None:
    assert [updates_of(share, 15) for share in (0.01, 1 / 3, 0.4, 1.0)] == [1, 5, 6, 15]
    assert [updates_of(share, 100) for share in (0.07, 0.28, 0.281)] == [7, 28, 29]  # 0.07 * 100 > 7


@pytest.mark.parametrize(("decay", "updates", "told"), [
    (0.9999, 500, "95% of the averaged weights"), (0.99, 500, ""), (0.9, 21, "11% of"), (0.9, 22, ""), (1.0, 5, ""),
])  # fmt: skip
def test_an_average_that_hardly_leaves_the_first_weights_is_told(decay: float, updates: int, told: str) -> None:
    found = slow_average(decay, updates)
    assert told in found if told else not found
