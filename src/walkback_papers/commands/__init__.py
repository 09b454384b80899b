"""One module for each command that walkback_papers adds."""
