"""Layers: the parts of networks, each built from a template."""
