"""Plans, and the one executor that carries them out."""
