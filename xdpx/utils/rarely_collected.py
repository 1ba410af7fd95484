"""Imported first by a process that others are forked off: it, and they until they train, collect garbage rarely."""

from __future__ import annotations

from xdpx.utils import collecting

collecting.rarely()
