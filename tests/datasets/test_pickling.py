from __future__ import annotations

import pickletools

import pytest

from xdpx.datasets.pickling import TensorPickle


@pytest.mark.parametrize("count", [0, 3, 2**31 - 1, 2**31, 2**62])
def test_the_instructions_are_sound_for_any_number(count: int) -> None:
    pickled = TensorPickle()
    data = pickled.dumps({"n": count, "x": {"values": pickled.tensor(0, "int32", count)}})
    steps = [(step.name, argument) for step, argument, _ in pickletools.genops(data)]
    assert steps[0] == ("PROTO", 2)
    assert steps[-1] == ("STOP", None)
    assert [argument for name, argument in steps if name in {"BININT", "LONG1"}].count(count) == 3 + (count == 0)


def test_only_torch_and_an_ordered_dict_are_named() -> None:
    pickled = TensorPickle()
    data = pickled.dumps({"x": pickled.tensor(0, "float32", 1)})
    named = {argument for step, argument, _ in pickletools.genops(data) if step.name == "GLOBAL"}
    assert named == {"torch FloatStorage", "torch._utils _rebuild_tensor_v2", "collections OrderedDict"}
