"""The engine on PyTorch."""
