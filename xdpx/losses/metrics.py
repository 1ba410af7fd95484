"""Where metrics were before they had a room of their own."""

raise ImportError("xdpx.losses.metrics is xdpx.metrics now: import the same names from there.")
