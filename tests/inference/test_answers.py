from xdpx.inference.answers import Prediction, _scored


def test_a_number_is_the_one_that_a_loss_of_ones_own_writes_and_not_rounded_otherwise():
    scores = [0.123456789, 0.5, 0.75]
    assert list(_scored(scores, ["0.123457", "2.5", "high"])) == [
        Prediction(None, {}, score=0.123456789), Prediction(None, {}, score=2.5),
        Prediction("high", {}, ("high",), score=0.75),
    ]  # fmt: skip
