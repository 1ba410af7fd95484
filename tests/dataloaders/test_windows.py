import pytest

from xdpx.dataloaders.windows import windows


@pytest.mark.parametrize(("count", "accumulation", "sizes"), [(6, 2, [2, 2, 2]), (7, 3, [3, 3, 1]), (0, 2, [])])
def test_the_last_window_of_an_epoch_may_be_short(count, accumulation, sizes):
    found = list(windows(range(count), accumulation))
    assert [len(window) for window in found] == sizes
    assert sum(found, []) == list(range(count))


def test_a_window_is_fetched_when_it_is_asked_for_and_not_before():
    fetched = []
    found = windows(map(fetched.append, range(10)), 3)
    next(found)
    assert fetched == [0, 1, 2]
