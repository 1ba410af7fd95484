from xdpx.experiments.running.saving import spread


def test_checkpoints_stay_that_are_far_enough_apart_in_time() -> None:
    assert spread({0: 0.0, 5: 10.0, 10: 60.0, 15: 100.0, 20: 125.0}, 60.0) == {0, 10, 20}
    assert spread({}, 60.0) == set()
