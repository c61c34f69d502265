"""Pages whose console blocks are run: what they show is what commands print, recorded from real clusters."""
