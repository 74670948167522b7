"""Made-up data in the shapes that the gallery's jobs read: seeded, with as many faults as asked for."""
