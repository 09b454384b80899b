"""The commands. Nothing here imports torch before a command needs it."""
