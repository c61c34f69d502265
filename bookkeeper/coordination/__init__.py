"""What the processes of one cluster agree on: sessions, the leader and the shared configuration."""
