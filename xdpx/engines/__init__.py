"""Device, precision and the arithmetic of one update, behind the few verbs of `base.Engine`."""
