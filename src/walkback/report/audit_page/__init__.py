"""The HTML page of an audit: a table of methods, plots by layer and by epoch, and conclusions by number of checks."""
