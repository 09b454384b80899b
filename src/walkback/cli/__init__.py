"""The command line. torch is imported only when a command needs it."""
