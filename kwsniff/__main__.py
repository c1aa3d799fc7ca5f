"""`python -m kwsniff`."""

from kwsniff.cli import main

if __name__ == "__main__":
    main(prog_name="kwsniff")
