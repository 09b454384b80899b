"""An audit's page: several methods in one table, layer by layer, over the epochs, and as more is looked at."""
