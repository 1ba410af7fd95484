"""Networks with generated batches, which `x-script run_profiling NAME` measures.

Your own, in a file of user/modules:

    from xdpx.models.profiles import Profile, register

    @register("mine")
    class Mine(Profile):
        def model_config(self):
            return {"model": "cls_cnn", "embedding_dim": 200, "hidden_size": 200, "vocab_size": 21128, "num_classes": 2}

        def create_fake_data(self):
            return {"input_ids": self.random_ids(), "attention_mask": self.whole()}
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from xdpx.config.faults import ConfigError, Fault, nearest
from xdpx.config.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor, nn


class Profile:
    """A network and a batch for it.

    Attributes:
        batch_size: rows of the batch; `-batch_size=8` changes it.
        seq_len: tokens of each row; `-seq_len=64` changes it.
    """

    batch_size = 32
    seq_len = 128

    def model_config(self) -> dict[str, Any]:
        """Return the config keys of the network; `model` is its registered name."""
        raise NotImplementedError

    def create_fake_data(self) -> dict[str, Any]:
        """Return the inputs of the network, by argument name.

        With `input_ids`, derived inputs may be left out: `attention_mask` (true where ids are not `pad_index`) and
        `masked_positions` (where ids are `mask_index`).
        """
        raise NotImplementedError

    def build_module(self, **changes: Any) -> nn.Module:
        """Return the network with random weights.

        Args:
            changes: keys that override those of `model_config`.

        Raises:
            ConfigError: a key has an invalid value, or `changes` has a key that the network does not have.
        """
        from xdpx.models import models

        given = self.model_config()
        keys = {**given, **changes}
        chosen = models[keys.pop("model")]
        fields = chosen.Parameters.model_fields
        faults = [_unknown(key, fields) for key in changes if key not in fields and key not in given]
        if faults:
            raise ConfigError("profile", faults)
        try:
            # A config may also contain keys of a processor, as those for the first XDPX do.
            known = chosen.Parameters.model_validate({key: value for key, value in keys.items() if key in fields})
        except ValidationError as error:
            raise ConfigError("profile", [_refused(each) for each in error.errors()]) from error
        built: nn.Module = chosen(known)
        return built

    def batch(self, module: nn.Module) -> dict[str, Any]:
        """Return the inputs with those derived from the token ids, if the network takes them."""
        keys, data = self.model_config(), dict(self.create_fake_data())
        takes = inspect.signature(module.forward).parameters
        ids = data.get("input_ids")
        if ids is not None and "attention_mask" in takes:
            data.setdefault("attention_mask", ids != keys.get("pad_index", 0))
        if ids is not None and "masked_positions" in takes:
            places = (ids == keys.get("mask_index", MASK)).flatten().nonzero().flatten()
            data.setdefault("masked_positions", places)
        return data

    def random_ids(self, *, vocab_size: int = 21128, first: int = 107) -> Tensor:
        """Return random ids (B, T) of words, without special tokens of the vocabulary of Chinese BERT."""
        import torch

        return torch.randint(first, vocab_size, (self.batch_size, self.seq_len))

    def whole(self) -> Tensor:
        """Return a mask (B, T) of all true, for rows without padding."""
        import torch

        return torch.ones(self.batch_size, self.seq_len, dtype=torch.bool)


MASK = 103
"""The token [MASK] in the vocabulary of Chinese BERT."""


def _unknown(key: str, fields: Mapping[str, Any]) -> Fault:
    near = nearest(key, [*fields, *OWN])
    return Fault(
        key, "is not a key of this network.", f"Did you mean {near}?" if near else f"It takes {', '.join(OWN)}."
    )


def _refused(error: Any) -> Fault:
    key = ".".join(map(str, error["loc"]))
    return Fault(key, f"is {error['input']!r}: {error['msg']}.", "Correct it in model_config, or as -key=value.")


OWN = ("batch_size", "seq_len")
"""Attributes of a profile that can be set on the command line."""

profiles: Registry[type[Profile]] = Registry(
    "profile",
    {
        "albert_lm": "xdpx.models.pytorch.profiled:AlbertLanguageModel",
        "bert_classification": "xdpx.models.pytorch.profiled:BertClassification",
        "bert_lm": "xdpx.models.pytorch.profiled:BertLanguageModel",
        "lopkm": "xdpx.models.pytorch.profiled:LocalMemories",
        "mgimn": "xdpx.models.pytorch.profiled:Matching",
        "mlman": "xdpx.models.pytorch.profiled:Matching",
        "pkm": "xdpx.models.pytorch.profiled:Memories",
        "rezero": "xdpx.models.pytorch.profiled:Gates",
    },
    base="xdpx.models.profiles:Profile",
    in_configs=False,
)
register = profiles.register
