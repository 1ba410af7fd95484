"""Building blocks shared by several networks."""
