from io import BytesIO

import pytest
import torch
from torch import nn
from torch.nn import functional

from xdpx.inference.onnx_file import short_attention

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


class Attention(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, query, key, mask):
        return functional.scaled_dot_product_attention(query, key, key, attn_mask=mask, scale=self.scale)


def written(network, given):
    """Return the ONNX session of a network, and how many of its nodes look for NaN."""
    import onnx

    buffer = BytesIO()
    with short_attention(18):
        names = ["query", "key", "mask"]
        torch.onnx.export(network, given, buffer, dynamo=False, opset_version=18, input_names=names)
    nodes = [each.op_type for each in onnx.load_from_string(buffer.getvalue()).graph.node]
    return onnxruntime.InferenceSession(buffer.getvalue()), nodes.count("IsNaN")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("scale", "num_checks"), [(0.3, 0), (None, 1)])
def test_attention_is_that_of_torch_where_some_or_all_keys_are_hidden(scale, num_checks):
    torch.manual_seed(1)
    query, key = torch.randn(3, 2, 4, 8), torch.randn(3, 2, 5, 8)
    mask = torch.rand(3, 1, 4, 5) < 0.5
    mask[1, 0, 2] = False  # this row sees nothing: torch gives 0 for it
    network = Attention(scale)
    session, found = written(network, (query, key, mask))
    given = {"query": query.numpy(), "key": key.numpy(), "mask": mask.numpy()}
    output = torch.from_numpy(session.run(None, given)[0])
    torch.testing.assert_close(output, network(query, key, mask))
    assert found == num_checks
