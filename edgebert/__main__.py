"""Run edgebert as ``python -m edgebert``."""

from edgebert.cli import main

if __name__ == "__main__":
    main()
