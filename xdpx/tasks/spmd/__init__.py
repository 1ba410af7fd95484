"""Tasks of the JAX engine: a model, how it is trained, what is measured."""
