"""Whether everything that is written in a figure can be read."""

import itertools

from matplotlib.axis import Axis
from matplotlib.text import Text


def boxes_of_text(figure):
    """The boxes of everything that is written, grouped by nothing: none may touch another."""
    figure.savefig("/dev/null", format="png")
    renderer = figure.canvas.get_renderer()
    # Matplotlib keeps ticks outside the picture, and does not draw them.
    outside = set()
    for axis in figure.findobj(Axis):
        low, high = sorted(axis.get_view_interval())
        slack = 1e-9 * (high - low)
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            if not low - slack <= tick.get_loc() <= high + slack:
                outside |= {tick.label1, tick.label2}
    found = [
        text
        for text in figure.findobj(Text)
        if text.get_visible() and text.get_text().strip() and text not in outside
    ]
    return [(text.get_text(), text.get_window_extent(renderer)) for text in found]


def assert_legible(figure):
    width, height = figure.canvas.get_width_height()
    boxes = boxes_of_text(figure)
    for text, box in boxes:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1, text
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        across, down = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        assert across <= 0 or down <= 0, (one, other)
