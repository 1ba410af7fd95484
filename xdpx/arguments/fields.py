"""All fields of the arguments, in the order in which users know them."""

from __future__ import annotations

from dataclasses import dataclass

from xdpx.arguments.learning_fields import LearningFields
from xdpx.arguments.machine_fields import MachineFields
from xdpx.arguments.own_fields import OwnFields
from xdpx.arguments.reporting_fields import ReportingFields


@dataclass(repr=False)
class Fields(OwnFields, MachineFields, ReportingFields, LearningFields):
    """Everything that can be decided about a training run. Fields of the last base come first."""
