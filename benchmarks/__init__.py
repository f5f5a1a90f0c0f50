"""Figures, as ratios to the floor and to peers, measured in one run on the reader's own machine."""
