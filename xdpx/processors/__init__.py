"""Processors convert encoded texts to samples, and samples to padded batches; registry by the names in configs."""

from typing import Any

from xdpx.config.registry import Registry

processors: Registry[Any] = Registry(
    "processor",
    {
        "single": "xdpx.processors.texts:SingleProcessor",
        "pair": "xdpx.processors.texts:PairProcessor",
        "single_with_logits": "xdpx.processors.with_logits:SingleWithLogitsProcessor",
        "pair_with_logits": "xdpx.processors.with_logits:PairWithLogitsProcessor",
        "bert_single_with_logits": "xdpx.processors.with_logits:BertSingleWithLogitsProcessor",
        "bert_pair_with_logits": "xdpx.processors.with_logits:BertPairWithLogitsProcessor",
        "bert_single": "xdpx.processors.bert:BertSingleProcessor",
        "bert_pair": "xdpx.processors.bert:BertPairProcessor",
        "bert_single_mix": "xdpx.processors.bert_mix:BertSingleMixProcessor",
        "bert_pair_mix": "xdpx.processors.bert_mix:BertPairMixProcessor",
        "bert_token": "xdpx.processors.bert_token:BertTokenProcessor",
        "bert_dpr": "xdpx.processors.views:BertDPRProcessor",
        "bert_qa": "xdpx.processors.bert_qa:BertQAProcessor",
        "bert_lm": "xdpx.processors.bert_lm:BertLMProcessor",
        "bert_prompt_single": "xdpx.processors.bert_prompt:BertPromptSingleProcessor",
        "bert_sop": "xdpx.processors.sentence_order:SentenceOrderProcessor",
        "bert_nsp": "xdpx.processors.sentence_order:NextSentenceProcessor",
        "bert_cl_single": "xdpx.processors.views:SingleViewsProcessor",
        "bert_cl_single_prompt": "xdpx.processors.prompt_lm:BertCLSinglePromptProcessor",
        "bert_cl_pair": "xdpx.processors.views:PairViewsProcessor",
        "bert_cl_triplet": "xdpx.processors.views:TripletViewsProcessor",
        "electra": "xdpx.processors.bert_lm:ElectraProcessor",
        "span_corruption": "xdpx.processors.span_corruption:SpanCorruptionProcessor",
        "session_corpus": "xdpx.processors.session_corpus:SessionCorpusProcessor",
        "sbert_nli": "xdpx.processors.views:SiamesePairProcessor",
        "bert_pair_siamese": "xdpx.processors.views:SiamesePairProcessor",
        "string": "xdpx.processors.texts:StringProcessor",
        "string_mix": "xdpx.processors.texts:StringMixProcessor",
        "structbert": "xdpx.processors.structbert:StructBertProcessor",
        "bert_supervised": "xdpx.processors.bert_lm:BertSupervisedProcessor",
        "causal_lm": "xdpx.processors.causal_lm:CausalLMProcessor",
    },
    base="xdpx.processors.base:Processor",
)
register = processors.register
