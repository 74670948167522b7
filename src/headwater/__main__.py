"""The entry point of ``python -m headwater``, and the script to pass to spark-submit."""

from __future__ import annotations

from headwater.cli.main import main

if __name__ == "__main__":
    main()
