"""What the sources of a stream still hold of the input that it has planned to read."""
