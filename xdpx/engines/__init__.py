"""Device, precision and the arithmetic of one update, behind the interface `base.Engine`."""
