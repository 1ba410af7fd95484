"""What training minimises, and the metrics that are computed once, from the predictions of a whole split."""

from typing import Any

from xdpx.config.registry import Registry

losses: Registry[Any] = Registry(
    "loss",
    {
        "causal_lm": "xdpx.losses.causal_lm:CausalLM",
        "cross_entropy": "xdpx.losses.cross_entropy:CrossEntropy",
        "masked_lm": "xdpx.losses.masked_lm:MaskedLM",
    },
)
register = losses.register
