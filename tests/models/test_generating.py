from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from transformers import GenerationConfig

from xdpx.models.pytorch.generating import filled_up, pad_id_of


def test_a_padding_token_is_asked_for_only_where_rows_are_shorter_than_they_may_be() -> None:
    pad_id = partial(pad_id_of, None, nn.Linear(1, 1))
    whole = torch.ones(2, 5, dtype=torch.long)
    assert filled_up(whole, GenerationConfig(max_length=5), pad_id) is whole
    with pytest.raises(ValueError, match="no padding token is known"):
        filled_up(whole, GenerationConfig(max_length=6), pad_id)
    assert filled_up(whole[:1], GenerationConfig(max_length=6), lambda: 0).tolist() == [[1, 1, 1, 1, 1, 0]]
