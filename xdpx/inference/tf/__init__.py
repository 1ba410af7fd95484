"""Networks of torch in TensorFlow: what torch.export makes of them, operation by operation."""
