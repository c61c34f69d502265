"""Rounds on clusters whose hosts are on machines of their own."""
