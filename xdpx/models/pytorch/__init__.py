"""The networks for PyTorch, one file each, on the building blocks of `modules/`."""
