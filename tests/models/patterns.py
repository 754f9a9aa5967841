"""Masks with every kind of padding, by its name."""

PATTERNS = {
    "one token": [[1]],
    "none": [[1, 1, 1, 1], [1, 1, 1, 1]],
    "right": [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]],
    "left": [[1, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]],
    "holes": [[1, 0, 1, 1], [0, 1, 0, 1], [1, 0, 0, 1]],
    "an empty row": [[1, 1, 1, 0], [0, 0, 0, 0], [0, 1, 1, 0]],
    "all positions": [[1] * 19, [1] * 18 + [0]],
}
