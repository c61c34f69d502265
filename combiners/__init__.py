"""Pure combiner functions over replication status values."""
