"""The papers' figures as data, how ours are found in stored results, and the page that sets one beside the other."""
