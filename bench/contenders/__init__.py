"""One small program for each contender. Each runs in a process of its own and prints one JSON line at its end."""
