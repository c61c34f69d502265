"""Pages whose console blocks are run: they show the output of commands, recorded from real clusters."""
