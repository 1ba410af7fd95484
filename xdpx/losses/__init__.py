"""What training minimises, and the metrics that are computed once, from the predictions of a whole split."""

from typing import Any

from xdpx.config.registry import Registry

losses: Registry[Any] = Registry(
    "loss",
    {
        "bce": "xdpx.losses.bce:BinaryCrossEntropy",
        "bce_distill": "xdpx.losses.static_distill:BCEDistill",
        "bert": "xdpx.losses.bert:BertLoss",
        "bert_prompt_loss": "xdpx.losses.bert_prompt:BertPromptLoss",
        "bert_pretrain_cl": "xdpx.losses.bert_pretrain_cl:BertPretrainContrastLoss",
        "bert_dpr": "xdpx.losses.bert_dpr:BertDPRLoss",
        "bert_qa": "xdpx.losses.bert_qa:BertQALoss",
        "electra": "xdpx.losses.electra:ElectraLoss",
        "rmr": "xdpx.losses.rmr:RMRLoss",
        "simcse": "xdpx.losses.simcse:SimCSELoss",
        "causal_lm": "xdpx.losses.causal_lm:CausalLM",
        "circle": "xdpx.losses.circle:Circle",
        "circle_siamese": "xdpx.losses.circle:CircleSiamese",
        "cross_entropy": "xdpx.losses.cross_entropy:CrossEntropy",
        "distill": "xdpx.losses.static_distill:OnlineDistill",
        "fewshot": "xdpx.losses.fewshot:FewshotLoss",
        "focal": "xdpx.losses.focal:Focal",
        "ghmc": "xdpx.losses.ghmc:GHMClassification",
        "label_smooth_ce": "xdpx.losses.label_smooth_ce:LabelSmoothCrossEntropy",
        "listnet": "xdpx.losses.ranking:ListNet",
        "masked_lm": "xdpx.losses.masked_lm:MaskedLM",
        "ranknet": "xdpx.losses.ranking:RankNet",
        "static_distill": "xdpx.losses.static_distill:StaticDistill",
        "tagging": "xdpx.losses.tagging:Tagging",
        "minilm": "xdpx.losses.minilm:MiniLMLoss",
        "mse": "xdpx.losses.mse:MeanSquaredError",
        "tinybert": "xdpx.losses.tinybert:TinyBertLoss",
        "tinybert_td": "xdpx.losses.tinybert:TinyBertTaskLoss",
        "taylor_ce": "xdpx.losses.taylor_ce:TaylorCrossEntropy",
    },
)
register = losses.register
