"""What the paper shows: the heights of the bars of its figures.

Fang, Zhao, Xu, Wu, Yao: GRID, IEEE/ACM Transactions on Networking 31(5), 2023. The figures are numbered as in the
authors' manuscript of August 2022. Its figures are drawings, so the heights were measured to about 0.2 % of an axis.
Numbers in its text agree: 16.9, 12.0, 11.4, 8 Gb/s in figure 5, and 23.5, 10, 8.9, 1 Gb/s in figure 12.
"""

from collections.abc import Mapping, Sequence

__all__ = ["ATP", "GERYON", "GRID", "GRID_OVER_ATP", "MODELS", "SWITCHML", "TESTBED_WORKERS", "WORKER_COUNTS", "bars"]

GRID, ATP, SWITCHML, GERYON = "GRID", "ATP", "SwitchML", "no aggregation"
"""Schemes; Geryon routes without aggregation."""
SCHEMES = (GRID, ATP, SWITCHML, GERYON)

MODELS = ("AlexNet", "Inception-V3", "ResNet50", "VGG16", "BERT", "LSTM")
TESTBED_WORKERS = (2, 4, 6, 8)
WORKER_COUNTS = {"fat-tree": (40, 60, 80, 100), "leaf-spine": (100, 150, 200, 250)}
"""Numbers of workers in the simulations."""
GRID_OVER_ATP = 1.19
"""The ratio that the text states for 40 workers on the fat tree."""

_ROWS: dict[tuple[int, str], tuple[Sequence[float], ...]] = {
    (4, ""): (
        (501.1, 520.4, 264.1, 211.2, 125.3, 118.0),
        (462.5, 416.1, 236.9, 166.4, 103.2, 84.5),
        (461.6, 397.8, 226.4, 152.4, 98.4, 78.9),
        (398.6, 310.4, 180.2, 123.5, 84.9, 61.9),
    ),
    (5, "Inception-V3"): (
        (53.4, 32.9, 21.8, 17.0),
        (51.7, 26.8, 17.8, 12.0),
        (52.1, 26.8, 17.1, 11.4),
        (27.6, 15.8, 10.1, 8.0),
    ),
    (5, "VGG16"): (
        (46.1, 34.9, 29.6, 25.6),
        (46.0, 24.4, 18.8, 18.4),
        (47.2, 30.6, 15.8, 14.7),
        (28.3, 16.2, 11.2, 9.25),
    ),
    (6, "Inception-V3"): (
        (1.60, 2.64, 2.86, 3.50),
        (1.69, 3.78, 4.50, 7.45),
        (1.60, 3.04, 5.61, 7.83),
        (2.60, 5.67, 7.60, 10.83),
    ),
    (6, "VGG16"): (
        (1.74, 4.23, 6.13, 8.01),
        (1.76, 5.19, 7.56, 13.35),
        (1.75, 4.41, 7.75, 14.45),
        (3.36, 8.84, 13.12, 20.02),
    ),
    (7, "Inception-V3"): (
        (7.15, 7.79, 8.23, 9.00),
        (7.24, 8.93, 9.87, 12.96),
        (7.15, 8.19, 10.98, 13.34),
        (8.15, 10.82, 12.97, 16.33),
    ),
    (7, "VGG16"): (
        (12.74, 14.80, 17.04, 29.19),
        (12.75, 15.76, 18.46, 24.52),
        (12.74, 14.98, 18.65, 25.62),
        (14.35, 19.40, 24.02, 31.20),
    ),
    (8, "Inception-V3"): (
        (121.7, 267.8, 414.7, 520.2),
        (119.7, 244.0, 368.8, 420.1),
        (120.3, 262.8, 363.6, 396.9),
        (98.7, 179.6, 257.9, 310.0),
    ),
    (8, "VGG16"): (
        (64.7, 135.8, 219.4, 310.0),
        (64.3, 125.0, 195.6, 269.4),
        (65.0, 130.3, 183.1, 247.9),
        (60.2, 130.3, 163.2, 203.6),
    ),
    (11, "fat-tree"): (
        (30.0, 27.2, 24.1, 21.0),
        (25.3, 16.3, 10.3, 5.25),
        (10.0, 6.67, 5.0, 4.0),
        (2.5, 1.67, 1.25, 1),
    ),
    (11, "leaf-spine"): ((29.0, 25.9, 23.7, 20.3), (12.5, 7.0, 6.13, 4.24), (10.0, 6.66, 5, 4), (1, 0.67, 0.49, 0.39)),
    (12, "fat-tree"): (
        (32.8, 29.2, 28.1, 23.5),
        (19.0, 15.1, 12.0, 10.0),
        (20.4, 14.9, 11.2, 8.9),
        (2.5, 1.67, 1.25, 1),
    ),
    (12, "leaf-spine"): ((42, 36.9, 35.7, 33.3), (12, 11, 9.49, 8.49), (6.88, 5.74, 4.91, 4.3), (1, 0.67, 0.49, 0.39)),
    (13, "fat-tree"): ((223, 327, 386, 415), (177, 180, 181, 184), (170, 175, 178, 180)),
    (13, "leaf-spine"): ((6770, 7750, 7900, 8050), (2350, 2400, 2450, 2510), (2390, 2390, 2390, 2390)),
    (14, "fat-tree"): ((245, 350, 448, 465), (133, 138, 148, 148), (163, 178, 178, 178)),
    (14, "leaf-spine"): ((9840, 11040, 11900, 12870), (1680, 1780, 1840, 1900), (1780, 1780, 1780, 1780)),
    (15, "fat-tree"): ((100,) * 4,) * 4,
    (15, "leaf-spine"): ((100,) * 4,) * 4,
    (16, "fat-tree"): ((86.0, 90.0, 98.0, 100), (95.0, 97.0, 100, 100), (81.6, 59.2, 44.4, 35.6), (100, 100, 100, 100)),
    (16, "leaf-spine"): ((83.9, 92.5, 100, 100), (90.0, 95.0, 97.5, 100), (17.2, 14.3, 12.5, 10.8), (100,) * 4),
}


def bars(number: int, panel: str = "") -> Mapping[str, Sequence[float]]:
    """Return the bars of a figure by scheme; empty if the paper has no such figure.

    Parameters
    ----------
    number : int
        The number of the figure.
    panel : str
        The model or topology of a panel.
    """
    return dict(zip(SCHEMES, _ROWS.get((number, panel), ())))
