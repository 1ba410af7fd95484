"""Losses: what training minimises, and the metrics computed once from the predictions of a whole split."""

from typing import Any

from xdpx.config.registry import Registry

losses: Registry[Any] = Registry(
    "loss",
    {
        "bce": "xdpx.losses.bce:BinaryCrossEntropy",
        "bce_distill": "xdpx.losses.static_distill:BCEDistill",
        "bert": "xdpx.losses.bert:BertLoss",
        "bert_cl": "xdpx.losses.contrast:PrototypeContrastLoss",
        "bert_prompt_loss": "xdpx.losses.bert_prompt:BertPromptLoss",
        "bert_pretrain_cl": "xdpx.losses.contrast:BertPretrainContrastLoss",
        "bert_dpr": "xdpx.losses.contrast:BertDPRLoss",
        "bert_qa": "xdpx.losses.bert_qa:BertQALoss",
        "electra": "xdpx.losses.bert:ElectraLoss",
        "rmr": "xdpx.losses.bert:RMRLoss",
        "simcse": "xdpx.losses.contrast:SimCSELoss",
        "causal_lm": "xdpx.losses.language_models:CausalLM",
        "circle": "xdpx.losses.circle:Circle",
        "circle_siamese": "xdpx.losses.circle:CircleSiamese",
        "cross_entropy": "xdpx.losses.cross_entropy:CrossEntropy",
        "distill": "xdpx.losses.static_distill:OnlineDistill",
        "fewshot": "xdpx.losses.fewshot:FewshotLoss",
        "focal": "xdpx.losses.cross_entropy:Focal",
        "ghmc": "xdpx.losses.bce:GHMClassification",
        "label_smooth_ce": "xdpx.losses.cross_entropy:LabelSmoothCrossEntropy",
        "listnet": "xdpx.losses.ranking:ListNet",
        "masked_lm": "xdpx.losses.language_models:MaskedLM",
        "ranknet": "xdpx.losses.ranking:RankNet",
        "static_distill": "xdpx.losses.static_distill:StaticDistill",
        "tagging": "xdpx.losses.tagging:Tagging",
        "minilm": "xdpx.losses.minilm:MiniLMLoss",
        "pkm_local_distill": "xdpx.losses.pkm:MemoryDistill",
        "mse": "xdpx.losses.mse:MeanSquaredError",
        "tinybert": "xdpx.losses.tinybert:TinyBertLoss",
        "tinybert_td": "xdpx.losses.tinybert:TinyBertTaskLoss",
        "taylor_ce": "xdpx.losses.cross_entropy:TaylorCrossEntropy",
    },
    base="xdpx.losses.base:Loss",
    adopts=True,
)
register = losses.register
