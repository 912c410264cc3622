"""`python -m autofn`."""

from autofn.cli import main

if __name__ == "__main__":
    main()
