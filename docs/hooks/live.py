"""Figures that one can touch: a script of docs/assets/figures, and the data that it reads.

The data are made by the running implementation while the site is built. What stands here is shown
where a browser runs no scripts.
"""
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import digits


def live(name: str, data: Any, caption: str, instead: str = "") -> str:
    """The place of a figure. `asset:` is where the site's assets lie; `instead` is HTML."""
    told = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    body = instead or "<p>This figure needs JavaScript.</p>"
    return (f'<figure class="drawing live" data-figure="{name}">'
            f'<script type="application/json">{told}</script>'
            f'<div class="live-body">{body}</div><figcaption>{caption}</figcaption></figure>'
            f'<script type="module" src="asset:figures/{name}.js"></script>')


def digits_figure() -> str:
    known = digits.samples()
    return live("digits", known, "The network of the demo, exported when this site was built. Of "
                f"{known['held_out']} held-out pictures it recognises "
                f"{100 * known['accuracy']:.1f} %. In the pictures of numbers, blue is positive "
                "and orange is negative; the strip above them is the arena.")


FIGURES: dict[str, Callable[[], str]] = {
    "digits": digits_figure,
}
