"""The coordination of the processes of one cluster: sessions, the leader, elections and the shared configuration."""
