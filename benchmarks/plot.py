"""Plots as small SVG files: bars for who took how long, lines for what grows.

Each is drawn on a card of its own with its own text colours, light or dark with the reader's
system, so that it can be read on whatever page it stands. Where the longest is more than twenty
times the shortest the scale is logarithmic: then dots, since a bar's length would say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

from benchmarks.result import Bar, Plot, number

WIDTH = 760
LEFT = 240
RIGHT = 90
ROW = 24
TOP = 44
DEEP = 260
"""Pixels of height of a plot with lines."""

_STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de; }
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-weight: 600; }
  .quiet { fill: #59636e; font-size: 12px; }
  .grid { stroke: #d0d7de; stroke-width: 1; }
  .range { stroke: #59636e; stroke-width: 1.5; }
  .ours { fill: #0969da; } .peer { fill: #9198a1; } .floor { fill: #c9a227; }
  .line { fill: none; stroke-width: 2; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #151b23; stroke: #3d444d; }
    text { fill: #f0f6fc; } .quiet { fill: #9198a1; }
    .grid { stroke: #3d444d; } .range { stroke: #9198a1; }
    .ours { fill: #4493f8; } .peer { fill: #656c76; } .floor { fill: #d4b13f; }
  }
"""
_COLOURS = (
    *("#0969da", "#c9a227", "#1a7f37", "#cf222e"),
    *("#8250df", "#bc4c00", "#59636e", "#bf3989"),
)
_KINDS = {"ours": "joblock", "peer": "another library", "floor": "the bare driver or primitive"}

Scale = Callable[[float], float]


def svg(plot: Plot) -> str:
    """The picture."""
    return _lines(plot) if plot.lines else _bars(plot)


def _bars(plot: Plot) -> str:
    bars = plot.bars
    height = TOP + ROW * len(bars) + 62
    highest = max(bar.value for bar in bars)
    lowest = min(bar.value for bar in bars)
    logarithmic = highest > 20 * lowest > 0
    across = WIDTH - LEFT - RIGHT
    if logarithmic:
        ticks = _decades(min(bar.low for bar in bars), max(bar.high for bar in bars))
        scale = _logarithmic(ticks[0], ticks[-1], LEFT, across)
    else:
        # One round that was disturbed must not make all the others small.
        ticks = _steps(min(max(bar.high for bar in bars), 1.5 * highest))
        scale = _linear(ticks[-1], LEFT, across)
    drawn = [_tick(scale(tick), height - 44, tick) for tick in ticks]
    for place, bar in enumerate(bars):
        drawn += _bar(bar, TOP + ROW * place, scale, logarithmic)
    unit = plot.unit + (", logarithmic scale" if logarithmic else "")
    kinds = [kind for kind in _KINDS if any(bar.kind == kind for bar in bars)]
    drawn += _legend([(_KINDS[kind], f'class="{kind}"') for kind in kinds], height - 12)
    drawn.append(
        f'<text class="quiet" x="{WIDTH - 14}" y="{height - 12}" text-anchor="end">{unit}</text>'
    )
    return _card(plot.title, height, drawn)


def _bar(bar: Bar, top: float, scale: Scale, logarithmic: bool) -> list[str]:
    middle = top + ROW / 2
    end = scale(bar.value)
    right = WIDTH - RIGHT
    mark = (
        f'<circle class="{bar.kind}" cx="{end:.1f}" cy="{middle}" r="6"/>'
        if logarithmic
        else f'<rect class="{bar.kind}" x="{LEFT}" y="{top + 4}" rx="2" '
        f'width="{max(1.0, end - LEFT):.1f}" height="{ROW - 8}"/>'
    )
    low, high = (min(max(scale(value), LEFT), right) for value in (bar.low, bar.high))
    return [
        f'<text x="{LEFT - 10}" y="{middle + 4}" text-anchor="end">{escape(bar.name)}</text>',
        mark,
        f'<path class="range" d="M{low:.1f} {middle}H{high:.1f}"/>',
        _quiet(max(end, high) + 10, middle + 4, number(bar.value)),
    ]


def _lines(plot: Plot) -> str:
    names = list(plot.lines)
    points = [point for line in plot.lines.values() for point in line]
    rows = math.ceil(len(names) / 3)
    height = TOP + DEEP + 52 + 20 * rows
    wide = [x for x, _ in points if x > 0]
    x_ticks = sorted({x for x, _ in points})
    left, across = 60.0, WIDTH - 100.0
    x_scale = _logarithmic(min(wide), max(wide), left, across)
    y_ticks = _decades(min(y for _, y in points), max(y for _, y in points))
    y_scale = _logarithmic(y_ticks[0], y_ticks[-1], TOP + DEEP, -float(DEEP))
    drawn = [_tick(x_scale(tick), TOP + DEEP, tick) for tick in x_ticks]
    for tick in y_ticks:
        y = y_scale(tick)
        drawn += [
            f'<path class="grid" d="M{left} {y:.1f}h{across}"/>',
            _quiet(left - 8, y + 4, _plain(tick), "end"),
        ]
    colours = dict(zip(names, (_COLOURS * 3)[: len(names)], strict=False))
    for name, line in plot.lines.items():
        path = " ".join(f"{x_scale(x):.1f},{y_scale(y):.1f}" for x, y in line)
        drawn.append(f'<polyline class="line" stroke="{colours[name]}" points="{path}"/>')
        drawn += [
            f'<circle fill="{colours[name]}" cx="{x_scale(x):.1f}" cy="{y_scale(y):.1f}" r="3.5"/>'
            for x, y in line
        ]
    drawn.append(
        f'<text class="quiet" x="{WIDTH - 14}" y="{TOP + DEEP + 36}" text-anchor="end">'
        f"{escape(plot.across)}; {plot.unit}; both scales logarithmic</text>"
    )
    for row in range(rows):
        entries = [(name, f'fill="{colours[name]}"') for name in names[row * 3 : row * 3 + 3]]
        drawn += _legend(entries, TOP + DEEP + 60 + 20 * row)
    return _card(plot.title, height, drawn)


def _card(title: str, height: float, drawn: list[str]) -> str:
    inside = "\n".join(drawn)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n"
        f'<rect class="card" x="0.5" y="0.5" rx="6" width="{WIDTH - 1}" height="{height - 1}"/>\n'
        f'<text class="title" x="14" y="26">{escape(title)}</text>\n{inside}\n</svg>\n'
    )


def _legend(entries: list[tuple[str, str]], y: float) -> list[str]:
    drawn: list[str] = []
    x = 14.0
    for name, fill in entries:
        drawn += [
            f'<rect {fill} x="{x}" y="{y - 9}" width="10" height="10" rx="2"/>',
            f'<text class="quiet" x="{x + 15}" y="{y}">{escape(name)}</text>',
        ]
        x += 30 + 6.6 * len(name)
    return drawn


def _quiet(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="quiet" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _tick(x: float, bottom: float, value: float) -> str:
    return (
        f'<path class="grid" d="M{x:.1f} {TOP - 6}V{bottom}"/>'
        f'<text class="quiet" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">'
        f"{_plain(value)}</text>"
    )


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _steps(highest: float) -> list[float]:
    step = 10 ** math.floor(math.log10(highest)) if highest > 0 else 1.0
    for finer in (5, 2):
        if highest / step < 3:
            step /= finer
            break
    return [step * place for place in range(math.ceil(highest / step) + 1)]


def _decades(lowest: float, highest: float) -> list[float]:
    first = math.floor(math.log10(max(lowest, 1e-6)))
    last = max(first + 1, math.ceil(math.log10(max(highest, 1e-6))))
    return [10.0**power for power in range(first, last + 1)]


def _linear(highest: float, start: float, across: float) -> Scale:
    return lambda value: start + across * value / highest


def _logarithmic(lowest: float, highest: float, start: float, across: float) -> Scale:
    wide = math.log10(highest / lowest) or 1.0
    return lambda value: start + across * math.log10(max(value, lowest) / lowest) / wide
