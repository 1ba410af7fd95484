import numpy as np
import pytest

from xdpx.losses.tagging import Tagging

PREDICTED = {"target": np.array([[0, 1, 1, -1]]), "pred": np.array([[0, 0, 1, -1]]), "loss_sum": 1.0, "count": 3.0}


@pytest.mark.parametrize(("tags", "told"), [(["NN", "VB"], True), (["u", "v"], True), (["O", "B-PER"], False)])
def test_f1_of_tags_that_mark_no_entities_is_explained(capsys, tags, told):
    loss = Tagging(Tagging.Parameters(tags=tags, max_len=4))
    assert loss.metrics(PREDICTED)["acc"] == pytest.approx(2 / 3)
    printed = capsys.readouterr()
    assert (f"'{tags[0]}' does not say where an entity begins" in printed.out + printed.err) == told
