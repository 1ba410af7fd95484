"""All runs below a folder, of every door, on one page: live on this machine, or as a file that needs nothing else."""
