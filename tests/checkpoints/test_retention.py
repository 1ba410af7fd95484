from xdpx.checkpoints.retention import in_order, once_safe


def test_steps_are_deleted_oldest_first() -> None:
    assert in_order([30, 10, 20]) == [10, 20, 30]


def test_steps_beyond_the_newest_go_before_all_others() -> None:
    assert in_order([10, 20, 30, 40], newest=20) == [30, 40, 10, 20]


def test_nothing_is_deleted_while_the_newest_is_damaged() -> None:
    assert once_safe([10, 20], lambda: ["model.pt: is cut short."]) == []
    assert once_safe([10, 20], list) == [10, 20]


def test_the_newest_is_not_read_back_for_nothing() -> None:
    assert once_safe([], lambda: [str(1 / 0)]) == []
