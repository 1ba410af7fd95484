"""A light network leaves as one file that onnxruntime reads, for texts of any number and length."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from xdpx.commands.script import main
from xdpx.config.faults import ConfigError
from xdpx.inference import formats


def exported(light: Any, folder: Path) -> Path:
    out = folder / "out"
    config = {"save_dir": str(light.run), "checkpoint": "<last>", "out_dir": str(out)}
    (folder / "export.json").write_text(json.dumps(config))
    assert main(["export_onnx", str(folder / "export.json")]) == 0
    return out


def test_the_file_gives_the_logits_of_the_network(
    light: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    out = exported(light, tmp_path)
    text = capsys.readouterr().out
    assert "KiB; inputs: " in text
    assert "ms for a text of 8 tokens, on one thread (median of 50)" in text
    assert (out / "labels.txt").read_text() == "neg\npos\n"
    names = json.loads((out / "inputs.json").read_text())["inputs"]
    session = onnxruntime.InferenceSession(str(out / "model.onnx"))
    assert [each.name for each in session.get_inputs()] == names

    def agrees(inputs: tuple[torch.Tensor, ...]) -> bool:
        given = {name: each.numpy() for name, each in zip(names, inputs, strict=True)}
        return torch.allclose(torch.from_numpy(session.run(["logits"], given)[0]), light.model(*inputs), atol=1e-5)

    assert agrees(light.inputs)
    assert agrees(tuple(each[1:, :1] for each in light.inputs))
    assert agrees(tuple(torch.cat([each] * 3)[1:] for each in light.inputs))
    padded = tuple(torch.cat([each, torch.zeros_like(each)], dim=1) for each in light.inputs)
    assert agrees(padded)
    assert torch.allclose(light.model(*padded), light.model(*light.inputs), atol=1e-5)


@pytest.mark.parametrize("light", [("single", "bow", {"embedding_dim": 4})], indirect=True)
def test_without_its_packages_the_extra_is_named(light: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "find_spec", lambda package: None)
    with pytest.raises(ConfigError, match=r"needs onnx and onnxruntime.*pip install 'xdpx\[export\]'"):
        exported(light, tmp_path)
