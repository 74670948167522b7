"""``python -m headwater``, and the file to hand to spark-submit."""

from __future__ import annotations

from headwater.cli.main import main

if __name__ == "__main__":
    main()
