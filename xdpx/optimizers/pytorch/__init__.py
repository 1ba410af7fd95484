"""Update rules written for PyTorch."""
