"""Side-by-side benchmarks: ``python -m bench`` runs them and writes to bench/results/."""
