"""The coordination of the processes of one cluster: sessions, the leader and the shared configuration."""
