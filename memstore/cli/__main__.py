"""``python -m memstore.cli``."""

from memstore.cli import main

if __name__ == "__main__":
    main()
