"""One cluster on one machine: its directory, and the processes that are kept running in it."""
