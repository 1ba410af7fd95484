"""The engine on JAX: one program, sharded over a mesh of devices."""
