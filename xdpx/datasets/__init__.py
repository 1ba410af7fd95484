"""Preprocessing, stores of samples, and batches; with the registries of data sets and samplers."""

from typing import Any

from xdpx.config.registry import Registry

datasets: Registry[Any] = Registry(
    "dataset", {"default": "xdpx.datasets.training_data:TrainingData"}, base="xdpx.datasets.training_data:TrainingData"
)
samplers: Registry[Any] = Registry(
    "sampler",
    {
        "balanced": "xdpx.datasets.balanced:BalancedSampler",
        "default": "xdpx.datasets.plan:Sampler",
        "episode": "xdpx.datasets.episodes:EpisodeSampler",
        "rank": "xdpx.datasets.ranked:RankSampler",
    },
    base="xdpx.datasets.plan:Sampler",
)
register = datasets.register
register_sampler = samplers.register
