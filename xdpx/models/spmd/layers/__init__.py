"""Layers: what networks are put together from, each built from a template."""
