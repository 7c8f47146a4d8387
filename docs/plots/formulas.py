"""A hook of MkDocs: formulas become MathML, which browsers draw by themselves: pages need nothing from elsewhere."""

import html
import re

from latex2mathml.converter import convert

SPAN = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_) -> str:
    """What arithmatex marks, \\(...\\) in a line and \\[...\\] on lines of its own."""
    return SPAN.sub(lambda m: convert(html.unescape(m[3]), display="block" if m[2] == "[" else "inline"), content)
