"""Former location of `xdpx.metrics`."""

raise ImportError("xdpx.losses.metrics is xdpx.metrics now: import the same names from there.")
