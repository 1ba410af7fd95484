"""Experiments in the style of Pax: classes with declared fields, registered by name, which `x-exp` shows and runs."""

from __future__ import annotations

from xdpx.experiments.base_experiment import BaseExperiment
from xdpx.experiments.meshes import MeshShape
from xdpx.experiments.registry import experiment, names, register, resolve

__all__ = ["BaseExperiment", "MeshShape", "experiment", "names", "register", "resolve"]
