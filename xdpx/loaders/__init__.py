"""Loaders convert rows of raw files to records; here is their registry, by the names used in configs."""

from typing import Any

from xdpx.config.registry import Registry

loaders: Registry[Any] = Registry(
    "loader",
    {
        "single": "xdpx.loaders.texts:SingleLoader",
        "prompt_single": "xdpx.loaders.texts:SingleLoader",
        "pair": "xdpx.loaders.texts:PairLoader",
        "single_mix": "xdpx.loaders.texts:SingleMixLoader",
        "pair_mix": "xdpx.loaders.texts:PairMixLoader",
        "single_with_logits": "xdpx.loaders.texts:SingleWithLogitsLoader",
        "pair_with_logits": "xdpx.loaders.texts:PairWithLogitsLoader",
        "corpus": "xdpx.loaders.corpus:CorpusLoader",
        "tagged": "xdpx.loaders.tagged:TaggedLoader",
        "dpr": "xdpx.loaders.texts:DPRLoader",
        "rank": "xdpx.loaders.texts:RankLoader",
        "qa": "xdpx.loaders.qa:QALoader",
        "triplet": "xdpx.loaders.texts:TripletLoader",
        "session_corpus": "xdpx.loaders.corpus:SessionCorpusLoader",
        "corpus_mix": "xdpx.loaders.corpus:CorpusMixLoader",
        "corpus_mix_prompt": "xdpx.loaders.corpus:CorpusMixPromptLoader",
    },
    base="xdpx.loaders.base:Loader",
)
register = loaders.register
