from __future__ import annotations

import pytest
import torch

from xdpx.arguments.hardware import has_bf16, has_tf32, set_tf32


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
def test_without_an_accelerator_there_is_neither() -> None:
    assert (has_bf16(), has_tf32()) == (False, False)


def test_tf32_can_be_allowed_and_forbidden_and_read_back() -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        for allowed in (True, False):
            set_tf32(allowed)
            assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is allowed
    finally:
        set_tf32(before)
