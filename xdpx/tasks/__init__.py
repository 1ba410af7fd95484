"""Tasks combine model and loss: from a batch they compute a loss sum, a count and facts, or predictions."""

from importlib import import_module
from typing import Any

from xdpx.config.registry import Registry

tasks: Registry[Any] = Registry(
    "task",
    {
        "bert_cl": "xdpx.tasks.bert_cl:PrototypeContrast",
        "default": "xdpx.tasks.default:Task",
        "distill": "xdpx.tasks.distill:Distill",
        "fewshot": "xdpx.tasks.fewshot:Fewshot",
        "fgm": "xdpx.tasks.one_attack:FGM",
        "freelb": "xdpx.tasks.freelb:FreeLB",
        "freelb_cnn": "xdpx.tasks.freelb:FreeLBCNN",
        "freelb_cnn_distill": "xdpx.tasks.freelb:FreeLBCNN",
        "pkm_distill": "xdpx.tasks.distill:MemoryDistillation",
        "pgd": "xdpx.tasks.one_attack:PGD",
        "rmr": "xdpx.tasks.diagnosis:SessionDiagnosis",
        "slm": "xdpx.tasks.diagnosis:TextDiagnosis",
        "smart": "xdpx.tasks.smart:Smart",
    },
    base="xdpx.tasks.default:Task",
)
register = tasks.register

HOMES = {"FreeLBTask": "xdpx.tasks.adv", "Task": "xdpx.tasks.default"}
"""Classes that the guide tells users to inherit, by name; imported on first access."""


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(HOMES[name]), name)
