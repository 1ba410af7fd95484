"""Networks only: from the arrays of a batch to logits. A loss, a device and a step are decided elsewhere."""

from typing import Any

from xdpx.config.registry import Registry

models: Registry[Any] = Registry(
    "model",
    {
        "albert_classification": "xdpx.models.pytorch.named_encoders:AlbertClassification",
        "deberta_classification": "xdpx.models.pytorch.named_encoders:DebertaClassification",
        "electra_classification": "xdpx.models.pytorch.named_encoders:ElectraClassification",
        "modernbert_classification": "xdpx.models.pytorch.named_encoders:ModernBertClassification",
        "roberta_classification": "xdpx.models.pytorch.named_encoders:RobertaClassification",
        "bert_classification": "xdpx.models.pytorch.bert_classification:BertClassification",
        "bert_classification_concat": "xdpx.models.pytorch.bert_concat:BertClassificationConcat",
        "bert_classification_self_attn": "xdpx.models.pytorch.bert_self_attn:BertClassificationSelfAttention",
        "bert_dpr_qa": "xdpx.models.pytorch.bert_dpr:BertDPRQA",
        "bert_qa": "xdpx.models.pytorch.bert_qa:BertQA",
        "bert_classification_rezero": "xdpx.models.pytorch.rezero:BertClassificationReZero",
        "bert_lm_rezero": "xdpx.models.pytorch.rezero:BertLanguageModelReZero",
        "bert_pretrain_rezero": "xdpx.models.pytorch.rezero:BertPretrainReZero",
        "bert_regression": "xdpx.models.pytorch.bert_regression:BertRegression",
        "bert_lm": "xdpx.models.pytorch.bert_lm:BertLanguageModel",
        "bert_prompt": "xdpx.models.pytorch.bert_prompt:BertPrompt",
        "bert_pretrain": "xdpx.models.pytorch.bert_pretrain:BertPretrain",
        "bert_pretrain_cl": "xdpx.models.pytorch.bert_pretrain_cl:BertPretrainContrast",
        "bert_token": "xdpx.models.pytorch.bert_token:BertToken",
        "electra_pretrain": "xdpx.models.pytorch.electra_pretrain:ElectraPretrain",
        "t5": "xdpx.models.pytorch.t5:T5",
        "rmr_bert": "xdpx.models.pytorch.rmr_bert:RMRBert",
        "simcse": "xdpx.models.pytorch.simcse:SimCSE",
        "bow": "xdpx.models.pytorch.bow:BagOfWords",
        "causal_lm": "xdpx.models.pytorch.causal_lm:CausalLanguageModel",
        "cls_cnn": "xdpx.models.pytorch.cls_cnn:ClsCnn",
        "cls_cnn_bce": "xdpx.models.pytorch.cls_cnn:ClsCnn",
        "dpcnn": "xdpx.models.pytorch.dpcnn:Dpcnn",
        "dssm": "xdpx.models.pytorch.dssm:Dssm",
        "esim": "xdpx.models.pytorch.esim:Esim",
        "gru": "xdpx.models.pytorch.recurrent:Gru",
        "gru_token": "xdpx.models.pytorch.recurrent_token:GruToken",
        "lstm": "xdpx.models.pytorch.recurrent:Lstm",
        "lstm_token": "xdpx.models.pytorch.recurrent_token:LstmToken",
        "match_cnn": "xdpx.models.pytorch.match_cnn:MatchCnn",
        "match_gru": "xdpx.models.pytorch.recurrent:MatchGru",
        "match_lstm": "xdpx.models.pytorch.recurrent:MatchLstm",
        "re2": "xdpx.models.pytorch.re2:RE2",
        "sbert_nli": "xdpx.models.pytorch.sbert_nli:SBertNLI",
        "xdp_cls_cnn": "xdpx.models.pytorch.cls_cnn:ClsCnn",
        "xdp_cls_cnn_bce": "xdpx.models.pytorch.cls_cnn:ClsCnn",
    },
)
register = models.register
