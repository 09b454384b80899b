"""The papers' figures as data, our values for them from stored results, and the page that compares the two."""
