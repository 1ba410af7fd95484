"""Convert torch networks to TensorFlow: their torch.export programs, operation by operation."""
