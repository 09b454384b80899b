"""What every room stands on: errors, names, randomness, configuration. No torch is imported here."""
