"""The tables of a run by the name they have here; they stand in `reports`, where trackers of the Trainer reach them."""

from xdpx.reports.growing_table import Cell, GrowingTable

__all__ = ["Cell", "GrowingTable"]
