"""`python -m walkback`."""

from walkback.cli.main import entry

if __name__ == "__main__":  # Not in a process that a command starts.
    entry()
