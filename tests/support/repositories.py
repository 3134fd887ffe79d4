"""A small package with tests, as a team would have it."""

import subprocess
from pathlib import Path

FILES = {
    "pyproject.toml": """[project]
name = "parcels"
version = "1.2.0"
license = "MIT"
dependencies = []

[project.optional-dependencies]
test = ["pytest"]
""",
    "README.md": "# parcels\n\nWhat a parcel costs, and what stands on it.\n",
    "parcels/__init__.py": '''"""What a parcel costs, and what stands on it."""

from parcels.labels import label, wrapped
from parcels.rates import price, zone

__all__ = ["label", "price", "wrapped", "zone"]
''',
    "parcels/rates.py": '''"""What a parcel costs."""

ZONES = {"NO": 1, "SE": 1, "DE": 2, "PE": 3}


def zone(country):
    """The zone of a country, by its two letters; 4 where it is not known.

    >>> zone("no")
    1
    >>> zone("XX")
    4
    """
    return ZONES.get(country.upper(), 4)


def price(grams, country, express=False):
    """What a parcel costs, in cents.

    Args:
        grams: Its weight; at most 20,000.
        country: Where it goes, by two letters.
        express: Whether it is to be there the next day.

    Raises:
        ValueError: It is too heavy, or weighs nothing.

    >>> price(500, "NO")
    900
    >>> price(500, "NO", express=True)
    1800
    """
    if grams <= 0 or grams > 20_000:
        raise ValueError(f"a parcel weighs from 1 to 20,000 grams, not {grams}")
    total = 400 + 500 * zone(country)
    if grams > 1000:
        total += (grams - 1000) // 500 * 50
    if express:
        total = total * 2
    return total


def cheapest(parcels):
    """The parcel that costs least, as (grams, country); of equal ones the first.

    >>> cheapest([(500, "DE"), (700, "NO")])
    (700, 'NO')
    """
    best = None
    for grams, country in parcels:
        cost = price(grams, country)
        if best is None or cost < best[0]:
            best = (cost, (grams, country))
    if best is None:
        return None
    return best[1]
''',
    "parcels/labels.py": '''"""What stands on a parcel."""


def wrapped(text, width=20):
    """A text in lines of at most so many characters, broken between words.

    >>> wrapped("one two three", 7)
    ['one two', 'three']
    """
    lines = []
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    if line:
        lines.append(line)
    return lines


def label(name, street, city, fragile=False):
    """The lines of a label: name and city in capitals.

    >>> label("ann lee", "Main Street 1", "Oslo")
    ['ANN LEE', 'Main Street 1', 'OSLO']
    """
    lines = [name.upper(), *wrapped(street), city.upper()]
    if fragile:
        lines.append("FRAGILE")
    return lines
''',
    "tests/test_rates.py": """import pytest

from parcels.rates import cheapest, price, zone


def test_zone_of_a_country():
    assert zone("NO") == 1
    assert zone("de") == 2


def test_zone_that_is_not_known():
    assert zone("XX") == 4


def test_price_by_zone():
    assert price(500, "NO") == 900
    assert price(500, "PE") == 1900


def test_price_by_weight():
    assert price(1000, "NO") == 900
    assert price(2000, "NO") == 1000
    assert price(2600, "NO") == 1050


def test_express_costs_twice_as_much():
    assert price(500, "DE", express=True) == 2800


@pytest.mark.parametrize("grams", [0, -5, 20001])
def test_a_weight_that_no_parcel_has(grams):
    with pytest.raises(ValueError, match="weighs from"):
        price(grams, "NO")


def test_the_heaviest_parcel():
    assert price(20_000, "NO") == 2800


def test_the_cheapest_of_some():
    assert cheapest([(500, "DE"), (700, "NO"), (600, "NO")]) == (700, "NO")
    assert cheapest([]) is None
""",
    "tests/test_labels.py": """from parcels import label, wrapped


def test_a_text_is_broken_between_words():
    assert wrapped("one two three", 7) == ["one two", "three"]


def test_a_short_text_is_one_line():
    assert wrapped("one two") == ["one two"]


def test_no_text_is_no_line():
    assert wrapped("") == []


def test_a_label():
    assert label("ann lee", "Main Street 1", "Oslo") == ["ANN LEE", "Main Street 1", "OSLO"]


def test_what_breaks_is_said_on_the_label():
    assert label("bob", "Way 2", "Lima", fragile=True) == ["BOB", "Way 2", "LIMA", "FRAGILE"]


def test_a_long_street_takes_two_lines():
    assert label("bob", "Avenue of the Twelve Apostles 7", "Lima") == ["BOB", "Avenue of the Twelve", "Apostles 7", "LIMA"]
""",
}


def package(folder: Path, *, changed: dict[str, str] | None = None) -> Path:
    """The package in a folder of its own."""
    root = folder / "parcels"
    for name, text in {**FILES, **(changed or {})}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def committed(root: Path, message: str = "As it is") -> str:
    """All of a folder as a commit of a repository, which is made where there is none; the commit."""
    settings = ["-c", "user.name=Ann Lee", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false"]
    if not (root / ".git").exists():
        subprocess.run(["git", "init", "-q", "-b", "main", str(root)], check=True)
    subprocess.run(["git", "-C", str(root), "add", "-A"], check=True)
    subprocess.run(["git", *settings, "-C", str(root), "commit", "-q", "-m", message], check=True)
    found = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return found.stdout.strip()
