"""One module for each bench that walkback_papers adds."""
