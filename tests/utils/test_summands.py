import numpy as np
import pytest
import torch

from xdpx.utils.summands import summand


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_a_tensor_of_half_precision_is_added_up_in_float32(kind):
    weight = torch.ones((), dtype=kind, requires_grad=True)
    assert (summand(weight).dtype, summand(weight).requires_grad) == (torch.float32, False)


def test_a_numpy_number_of_half_precision_is_added_up_in_float32():
    assert summand(np.float16(2.5)).dtype == np.float32


@pytest.mark.parametrize("value", [1.5, 3, torch.tensor(3), torch.tensor(0.1, dtype=torch.float64), np.int16(3)])
def test_other_numbers_stay_as_they_are(value):
    assert summand(value) is value or torch.equal(summand(value), value)
    assert type(summand(value)) is type(value)
