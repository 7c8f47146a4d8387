"""How far samples are from data: distances between two sets of points, and whether samples are copies of data."""
