"""One cluster on one machine: its directory, and a supervisor of its processes."""
