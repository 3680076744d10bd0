"""Colours: text that can be read, and kinds that can be told apart with any colour vision, and in grey.

Contrast: WCAG 2.2, relative luminance. Colour vision: Machado, Oliveira and Fernandes 2009, severity 1.0, applied to
linear RGB. Distance: CIE 1976 ΔE in CIELAB (D65); 20 is far beyond the just noticeable 2.3.
"""

from itertools import combinations

import numpy as np
import pytest

from pplab.palette import COMMUNICATION, DARK, LIGHT, MESSAGE, THEMES, theme

both_themes = pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])

VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    "grey": [[0.2126, 0.7152, 0.0722]] * 3,
}
FAR = {"normal": 20, "protanopia": 20, "deuteranopia": 20, "tritanopia": 20, "grey": 15}


def linear(colour):
    """#rrggbb → linear RGB, 0 to 1."""
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    """WCAG's contrast ratio of two colours, from 1 to 21."""
    low, high = sorted(linear(colour) @ [0.2126, 0.7152, 0.0722] for colour in (a, b))
    return (high + 0.05) / (low + 0.05)


def lab(rgb):
    """Linear RGB → CIELAB under D65."""
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb
    t = xyz / [0.9505, 1.0, 1.089]
    x, y, z = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(a, b, vision):
    """How far two colours look apart."""
    seen = [lab(np.clip(np.array(VISION[vision]) @ linear(colour), 0, 1)) for colour in (a, b)]
    return float(np.linalg.norm(seen[0] - seen[1]))


def test_the_measures_themselves():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)  # WebAIM's example of a near miss
    assert distance("#000000", "#ffffff", "normal") == pytest.approx(100, abs=0.1)
    assert distance("#ff0000", "#00ff00", "normal") > 2 * distance("#ff0000", "#00ff00", "deuteranopia")


@both_themes
def test_text_can_be_read(colours):
    assert set(colours.kinds) == {"F", "B", "I", "W", COMMUNICATION, MESSAGE}
    for kind, look in colours.kinds.items():
        assert contrast(look.text, look.fill) >= 4.5, kind
    assert contrast(colours.words, colours.page) >= 4.5
    assert contrast(colours.words, colours.lane) >= 4.5


@both_themes
@pytest.mark.parametrize("vision", VISION)
def test_kinds_can_be_told_apart_by_colour_or_pattern(colours, vision):
    for (a, one), (b, two) in combinations(colours.kinds.items(), 2):
        apart = distance(one.fill, two.fill, vision)
        assert one.pattern != two.pattern or apart >= FAR[vision], f"{a} and {b} are {apart:.1f} apart"


@both_themes
@pytest.mark.parametrize("vision", VISION)
def test_idle_time_can_be_told_from_work(colours, vision):
    for kind, look in colours.kinds.items():
        apart = distance(look.fill, colours.lane, vision)
        assert look.pattern or apart >= FAR[vision], f"{kind} and the lane are {apart:.1f} apart"


@both_themes
def test_the_lane_can_be_told_from_the_page(colours):
    assert distance(colours.lane, colours.page, "grey") >= 5


def test_patterns_are_the_same_in_both_themes():
    assert [look.pattern for look in LIGHT.kinds.values()] == [look.pattern for look in DARK.kinds.values()]


def test_themes_by_name():
    assert {name: theme(name) for name in THEMES} == {"light": LIGHT, "dark": DARK}
    with pytest.raises(ValueError, match="look is 'sepia': choose 'light' or 'dark'"):
        theme("sepia")
