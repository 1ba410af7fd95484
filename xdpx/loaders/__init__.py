"""Raw file -> records: the table of loaders, by the name a config uses."""

from typing import Any

from xdpx.config.registry import Registry

loaders: Registry[Any] = Registry(
    "loader",
    {
        "single": "xdpx.loaders.single:SingleLoader",
        "pair": "xdpx.loaders.pair:PairLoader",
        "corpus": "xdpx.loaders.corpus:CorpusLoader",
        "triplet": "xdpx.loaders.triplet:TripletLoader",
        "corpus_mix": "xdpx.loaders.corpus_mix:CorpusMixLoader",
    },
)
register = loaders.register
