"""An audit card on paper and on screen: Markdown, LaTeX and one HTML page, from the card alone. No torch is needed."""
