"""Language models at their documented sizes: `lm_cloud` on synthetic data, `c4`, and `c4_multislice`."""
