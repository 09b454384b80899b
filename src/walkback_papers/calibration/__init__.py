"""The study `calibration`: methods whose truth is known, and what the claims say of them."""
