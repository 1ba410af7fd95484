"""All runs below a folder, of x-train, x-exp and Trainer, on one page: live on this machine or as one file."""
