"""From numbers to flags to a verdict: pure functions of stored measurements. No torch is imported here."""
