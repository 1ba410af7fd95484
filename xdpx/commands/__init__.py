"""The commands: one thin file each, which parses its words, builds the parts and calls them."""

from typing import Any

from xdpx.config.registry import Registry

commands: Registry[Any] = Registry(
    "command",
    {
        "x-eval": "xdpx.commands.evaluate:Evaluate",
        "x-pred": "xdpx.commands.predict:Predict",
        "x-prepro": "xdpx.commands.prepro:Prepro",
        "x-train": "xdpx.commands.train:Train",
        "x-tune": "xdpx.commands.tune:Tune",
        "x-script bce_threshold": "xdpx.commands.bce_threshold:BceThreshold",
        "x-script calibrate": "xdpx.commands.calibrate:Calibrate",
        "x-script compare_runs": "xdpx.commands.compare_runs:CompareRuns",
        "x-script confusion_matrix": "xdpx.commands.confusion_matrix:ConfusionMatrix",
        "x-script export_hf": "xdpx.commands.export_hf:ExportHF",
        "x-script export_int8": "xdpx.commands.export_int8:ExportInt8",
        "x-script export_onnx": "xdpx.commands.export_onnx:ExportOnnx",
        "x-script export_openvino": "xdpx.commands.export_openvino:ExportOpenVino",
        "x-script export_pt2": "xdpx.commands.export_pt2:ExportPt2",
        "x-script export_pt": "xdpx.commands.export_pt:ExportPT",
        "x-script export_tf": "xdpx.commands.export_tf:ExportTF",
        "x-script export_torchscript": "xdpx.commands.export_torchscript:ExportTorchscript",
        "x-script pkm_init": "xdpx.commands.pkm_init:PKMInit",
        "x-script prune_heads": "xdpx.commands.prune_heads:PruneHeads",
        "x-script run_profiling": "xdpx.commands.run_profiling:RunProfiling",
        "x-viz": "xdpx.commands.visualise:Visualise",
    },
)
register = commands.register
