"""What all SVG pictures share: the colours and patterns of a look, a page, round steps for ticks."""

from __future__ import annotations

from math import floor, log10

from pplab.palette import DARK, LIGHT, THEMES, Theme, theme

PATTERNS = {
    "lines": '<path d="M-1 1L1-1M0 6L6 0M5 7L7 5" stroke="{}" stroke-opacity=".45"/>',
    "dots": '<path d="M1.4 2h1.4v1.4h-1.4zM4.4 5h1.4v1.4h-1.4z" fill="{}" fill-opacity=".5"/>',
    "cross": '<path d="M0 0L6 6M6 0L0 6" stroke="{}" stroke-opacity=".6"/>',
}


def nice_step(step: float) -> float:
    """The next of 1, 2, 5 · 10ⁿ."""
    if step <= 0:
        return 1.0
    power = 10.0 ** floor(log10(step))
    return next(power * k for k in (1, 2, 5, 10) if power * k >= step * (1 - 1e-9))


def pattern_defs(key: str) -> str:
    """The patterns of all kinds, for a picture whose class is ``key``."""
    out = []
    for kind, look in LIGHT.kinds.items():
        if look.pattern:
            marks = PATTERNS[look.pattern].replace("{}", look.text)
            out.append(
                f'<pattern id="p{kind}{key}" width="6" height="6" patternUnits="userSpaceOnUse">{marks}</pattern>'
            )
    return f"<defs>{''.join(out)}</defs>"


def style_rules(look: str, key: str) -> str:
    """The picture's colours; ``auto`` follows the page's theme where it has one, the system's elsewhere."""
    me = f".p{key}"
    rules = (
        f"{me}{{font:11px system-ui,sans-serif}}{me} .ttl{{font-weight:600}}{me} .chunk{{fill:#fff;fill-opacity:.55}}"
        f"{me} .txt{{fill:var(--txt)}}{me} .lane{{fill:var(--lane)}}{me} .page{{fill:var(--page)}}"
        f"{me} .tick{{stroke:var(--tick)}}"
    )
    for kind, kind_look in LIGHT.kinds.items():
        mark = f"url(#p{kind}{key})" if kind_look.pattern else "none"
        rules += f"{me} .{kind}{{fill:var(--{kind})}}{me} .{kind}p{{fill:{mark}}}{me} .{kind}t{{fill:var(--{kind}t)}}"
    if look not in ("auto", *THEMES):
        raise ValueError(f"look is {look!r:.40}: choose 'light' or 'dark', or 'auto', the colours around the picture")
    if look != "auto":
        return _variables(me, theme(look)) + rules
    return theme_variables(me) + rules


def theme_variables(me: str) -> str:
    """The colours as CSS variables of what the selector finds, of the theme around it: a page's, or the system's.

    JupyterLab and the static edition write their theme into an attribute of the page.
    """
    return (
        _variables(me, LIGHT)
        + f"@media(prefers-color-scheme:dark){{{_variables(me, DARK)}}}"
        + _variables(f'[data-jp-theme-light="true"] {me},[data-theme="light"] {me}', LIGHT)
        + _variables(f'[data-jp-theme-light="false"] {me},[data-theme="dark"] {me}', DARK)
    )


def _variables(selector: str, colours: Theme) -> str:
    kinds = "".join(f"--{k}:{look.fill};--{k}t:{look.text};" for k, look in colours.kinds.items())
    return (
        f"{selector}{{--txt:{colours.words};--lane:{colours.lane};--tick:{colours.line};--page:{colours.page};{kinds}}}"
    )


def page(look: str) -> str:
    """The background: none for ``auto``."""
    return "" if look == "auto" else '<rect width="100%" height="100%" class="page"/>'
