"""A learning curve in plain text: a plot for each measure, and one honest sentence below it."""

from collections.abc import Iterator, Sequence

from journeyman.curve.measure import LEAST, Change, Measure, rolling
from journeyman.curve.points import Point
from journeyman.trace import average_known

WIDTH, HEIGHT = 60, 7
MARK = "•"


def amount(measure: Measure, value: float, *, signed: bool = False) -> str:
    """A value with its unit, as short as it can be read."""
    sign = "+" if signed else ""
    match measure.name:
        case "success":
            return f"{100 * value:{sign}.0f} {'points' if signed else '%'}"
        case "score":
            return f"{value:{sign}.2f}"
        case "tokens":
            return f"{value:{sign},.0f}"
        case "cost":
            lead, digits = ("-" if value < 0 else sign), 4 if abs(value) >= 0.01 else 6
            return f"{lead}${abs(value):.{digits}f}" if value else "$0"


def span(measure: Measure, interval: tuple[float, float]) -> str:
    """An interval of differences."""
    low, high = (amount(measure, end, signed=True) for end in interval)
    return f"{low.removesuffix(' points')} to {high}"


def sentence(change: Change) -> str:
    """What is shown of one measure, and what is not."""
    measure = change.measure
    if not change.known:
        return f"{measure.name}: not known of any of {change.unknown} tasks"
    aside = f" ({change.unknown} unknown, left out)" if change.unknown else ""
    if change.first is None or change.last is None or change.interval is None or change.difference is None:
        return (
            f"{measure.name}: not shown: {change.known} known tasks{aside} are too few; "
            f"the first and the last part need {LEAST} each of one kind"
        )
    share = f", {change.relative:+.0%}" if change.relative is not None and not measure.share else ""
    moved = f"{amount(measure, change.first)} → {amount(measure, change.last)}"
    by = f"{amount(measure, change.difference, signed=True)}{share}, 95 % interval {span(measure, change.interval)}"
    said = {"better": "better", "worse": "WORSE"}.get(change.verdict, "not shown: the interval includes 0")
    return f"{measure.name}: {moved} ({by}; n = {change.compared}): {said}{aside}"


def lines(points: Sequence[Point], changes: Sequence[Change], *, window: int, part: float) -> Iterator[str]:
    """The whole report."""
    yield f"{len(points)} tasks; each mark is the mean of the last {window} known values"
    for change in changes:
        yield ""
        if doubled(change.measure, points):
            yield f"{change.measure.name}: 1 where a task succeeded and 0 where not, so there is no more to it than success"
            continue
        if change.known:
            yield from plot(change.measure, points, window)
        yield sentence(change)
    yield ""
    yield f"First and last part: {part:.0%} of the tasks of each kind, compared with their own."
    if left := sorted({group or "(no kind)" for change in changes for group in change.left_out if change.known}):
        yield f"Too few tasks to be compared with themselves, so left out somewhere: {', '.join(left)}."
    if any(change.verdict in ("better", "worse") for change in changes):
        yield "A curve shows that it changed, not why: `journeyman evaluate` shows on held-out tasks whether a playbook is why."


def doubled(measure: Measure, points: Sequence[Point]) -> bool:
    """Whether the scores say nothing but success."""
    same = all(point.score == (None if point.success is None else float(point.success)) for point in points)
    return measure.name == "score" and same and any(point.score is not None for point in points)


def plot(measure: Measure, points: Sequence[Point], window: int) -> Iterator[str]:
    """The rolling mean as rows of marks; columns hold as many tasks as it takes to keep within the width."""
    means = rolling([measure.of(point) for point in points], window)
    columns = min(WIDTH, len(means))
    drawn = [average_known(means[at * len(means) // columns : (at + 1) * len(means) // columns]) for at in range(columns)]
    known = [value for value in drawn if value is not None]
    bottom, top = (0.0, 1.0) if measure.share else (0.0, max(known, default=0.0) or 1.0)
    rows = [None if value is None else round((value - bottom) / (top - bottom) * (HEIGHT - 1)) for value in drawn]
    labels = {HEIGHT - 1: amount(measure, top), 0: amount(measure, bottom)}
    margin = max(map(len, labels.values()))
    yield f"{measure.name}, {measure.unit}"
    for row in reversed(range(HEIGHT)):
        marks = "".join(MARK if at == row else " " for at in rows).rstrip()
        yield f"{labels.get(row, ''):>{margin}} ┤{marks}".rstrip()
    yield f"{'':>{margin}} └{'─' * columns}"
    first, last = "1", str(len(points))
    yield f"{'':>{margin}}  {first}{last:>{max(columns - len(first), len(last) + 1)}}"
