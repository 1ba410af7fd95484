"""Start the processes of a training, recognise those that a launcher started, and submit jobs to other places."""
