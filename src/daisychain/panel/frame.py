"""What all pages have around their content: header, navigation, light or dark; and cards to put things into."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

from daisychain.panel import theme
from daisychain.panel.context import PanelContext

NAVIGATION = (("Fleet", "/"), ("Runs", "/runs"), ("Train", "/train"))


@contextmanager
def frame(context: PanelContext, title: str, *, here: str = "") -> Iterator[None]:
    """The page around `with frame(...)`: use it first in a page; `here` is the path in the navigation that is lit.

    The classes of `static/panel.css` lay things out (`card`, `columns`, `row`, `facts`, …); there is no Tailwind.
    """
    ui.page_title(f"{title} · DaisyChain")
    ui.add_head_html(theme.HEAD)
    _link("Skip to content", "#content").classes("skip")
    with ui.element("header").classes("top"):
        with ui.element("a").props('href="/"').classes("brand"):
            ui.element("img").props(f'src="{theme.ROUTE}/daisy.svg" alt="" width="30" height="30"')
            _text("DaisyChain")
        with ui.element("nav").props('aria-label="Pages"').classes("places"):
            for text, path in NAVIGATION:
                link = _link(text, path)
                if path == here:
                    link.props('aria-current="page"')
        button = ui.element("button").props('id="theme" type="button"').classes("quiet")
        button.on("click", js_handler="() => window.daisyTheme.next()")
    with ui.element("main").classes("page").props('id="content" tabindex="-1"'):
        yield
    ui.run_javascript("window.daisyTheme.show()")  # the button is there now


@contextmanager
def card(heading: str, classes: str = "") -> Iterator[ui.element]:
    """A box with a heading, in which `with card(...)` puts what follows."""
    with ui.element("section").classes(f"card {classes}") as section:
        with ui.element("h2"):
            _text(heading)
        yield section


def _link(text: str, path: str) -> ui.element:
    with ui.element("a").props(f'href="{path}"') as link:
        _text(text)
    return link


def _text(text: str) -> None:
    TextElement(tag="span", text=text)
