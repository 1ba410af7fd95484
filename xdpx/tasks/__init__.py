"""Where data meets model: a batch goes in; a loss sum, a count and facts, or predictions, come out."""

from typing import Any

from xdpx.config.registry import Registry

tasks: Registry[Any] = Registry("task", {"default": "xdpx.tasks.default:Task"})
register = tasks.register
