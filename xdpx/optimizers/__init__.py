"""Optimizers, with one registry of names for `optimizer` (x-train) and `optim` (Trainer)."""

from typing import Any, NamedTuple

from xdpx.config.registry import Registry


class Package(NamedTuple):
    """A third-party package with optimizers.

    Attributes:
        install: command that installs it.
        names: {class in `families` that makes its optimizers: their names}.
        imports: further packages that it imports.
    """

    install: str
    names: dict[str, tuple[str, ...]]
    imports: tuple[str, ...] = ()


PACKAGES: dict[str, Package] = {
    "bitsandbytes": Package(
        "pip install bitsandbytes",
        {
            "BitsAndBytesAdamW": ("adamw_bnb_8bit", "adamw_8bit", "paged_adamw_32bit", "paged_adamw_8bit"),
            "BitsAndBytesAdEMAMix": ("ademamix", "ademamix_8bit", "paged_ademamix_32bit", "paged_ademamix_8bit"),
            "BitsAndBytesLion": ("lion_8bit", "lion_32bit", "paged_lion_32bit", "paged_lion_8bit"),
            "BitsAndBytesRMSprop": ("rmsprop_bnb", "rmsprop_bnb_8bit", "rmsprop_bnb_32bit"),
        },
    ),
    "galore_torch": Package(
        "pip install galore-torch",
        {
            "GaLore": ("galore_adamw", "galore_adamw_8bit", "galore_adafactor"),
            "GaLoreLayerwise": (
                "galore_adamw_layerwise",
                "galore_adamw_8bit_layerwise",
                "galore_adafactor_layerwise",
            ),
        },
        ("bitsandbytes",),
    ),
    "apollo_torch": Package(
        "pip install apollo-torch",
        {"Apollo": ("apollo_adamw",), "ApolloLayerwise": ("apollo_adamw_layerwise",)},
        ("bitsandbytes",),
    ),
    "torchao": Package("pip install 'torchao>=0.4'", {"LowBitAdamW": ("adamw_torch_4bit", "adamw_torch_8bit")}),
    "lomo_optim": Package("pip install lomo-optim", {"Lomo": ("lomo",), "AdaLomo": ("adalomo",)}),
    "schedulefree": Package(
        "pip install 'schedulefree>=1.4'",
        {"ScheduleFree": ("schedule_free_radam", "schedule_free_adamw"), "ScheduleFreeSGD": ("schedule_free_sgd",)},
    ),
    "grokadamw": Package("pip install grokadamw", {"GrokAdamW": ("grokadamw",)}),
    "optimi": Package("pip install torch-optimi", {"StableAdamW": ("stable_adamw",)}),
    "torchdistx": Package("see https://github.com/pytorch/torchdistx", {"AnyPrecisionAdamW": ("adamw_anyprecision",)}),
    "torch_xla": Package("pip install torch_xla", {"XlaAdamW": ("adamw_torch_xla",)}),
    "torch_npu": Package("pip install torch_npu", {"NpuAdamW": ("adamw_torch_npu_fused",)}),
}
"""Packages by the module to import."""

NEEDED: dict[str, tuple[str, ...]] = {
    name: (module, *package.imports)
    for module, package in PACKAGES.items()
    for names in package.names.values()
    for name in names
}
"""Modules that an optimizer requires, by its name."""

optimizers: Registry[Any] = Registry(
    "optimizer",
    {
        "adam": "xdpx.optimizers.pytorch.adam:Adam",
        "lamb": "xdpx.optimizers.pytorch.lamb:Lamb",
        "pair": "xdpx.optimizers.pytorch.pair:Pair",
        "sparse_adam": "xdpx.optimizers.pytorch.sparse_adam:SparseAdam",
        "adafactor": "xdpx.optimizers.pytorch.families:Adafactor",
        "adagrad": "xdpx.optimizers.pytorch.families:Adagrad",
        "adamw_torch": "xdpx.optimizers.pytorch.families:AdamW",
        "adamw_torch_fused": "xdpx.optimizers.pytorch.families:AdamW",
        "rmsprop": "xdpx.optimizers.pytorch.families:RMSprop",
        "sgd": "xdpx.optimizers.pytorch.families:SGD",
        **{
            name: f"xdpx.optimizers.pytorch.families:{family}"
            for package in PACKAGES.values()
            for family, names in package.names.items()
            for name in names
        },
    },
)
register = optimizers.register
