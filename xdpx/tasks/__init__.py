"""Where data meets model: a batch goes in; a loss sum, a count and facts, or predictions, come out."""

from typing import Any

from xdpx.config.registry import Registry

tasks: Registry[Any] = Registry(
    "task",
    {
        "default": "xdpx.tasks.default:Task",
        "distill": "xdpx.tasks.distill:Distill",
        "fewshot": "xdpx.tasks.fewshot:Fewshot",
        "fgm": "xdpx.tasks.one_attack:FGM",
        "freelb": "xdpx.tasks.freelb:FreeLB",
        "freelb_cnn": "xdpx.tasks.freelb_cnn:FreeLBCNN",
        "freelb_cnn_distill": "xdpx.tasks.freelb_cnn:FreeLBCNN",
        "pgd": "xdpx.tasks.one_attack:PGD",
        "rmr": "xdpx.tasks.diagnosis:SessionDiagnosis",
        "slm": "xdpx.tasks.diagnosis:TextDiagnosis",
        "smart": "xdpx.tasks.smart:Smart",
    },
)
register = tasks.register
