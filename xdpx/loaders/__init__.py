"""Raw file -> records: the table of loaders, by the name a config uses."""

from typing import Any

from xdpx.config.registry import Registry

loaders: Registry[Any] = Registry(
    "loader",
    {
        "single": "xdpx.loaders.single:SingleLoader",
        "prompt_single": "xdpx.loaders.single:SingleLoader",
        "pair": "xdpx.loaders.pair:PairLoader",
        "single_mix": "xdpx.loaders.mix:SingleMixLoader",
        "pair_mix": "xdpx.loaders.mix:PairMixLoader",
        "single_with_logits": "xdpx.loaders.with_logits:SingleWithLogitsLoader",
        "pair_with_logits": "xdpx.loaders.with_logits:PairWithLogitsLoader",
        "corpus": "xdpx.loaders.corpus:CorpusLoader",
        "tagged": "xdpx.loaders.tagged:TaggedLoader",
        "dpr": "xdpx.loaders.dpr:DPRLoader",
        "rank": "xdpx.loaders.rank:RankLoader",
        "qa": "xdpx.loaders.qa:QALoader",
        "triplet": "xdpx.loaders.triplet:TripletLoader",
        "session_corpus": "xdpx.loaders.session_corpus:SessionCorpusLoader",
        "corpus_mix": "xdpx.loaders.corpus_mix:CorpusMixLoader",
        "corpus_mix_prompt": "xdpx.loaders.corpus_mix:CorpusMixPromptLoader",
    },
)
register = loaders.register
