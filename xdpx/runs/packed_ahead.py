"""Imported by a process that others are forked off: it packs the code for the snapshots of all of them."""

from __future__ import annotations

from xdpx.runs import snapshot

snapshot.pack_ahead()
