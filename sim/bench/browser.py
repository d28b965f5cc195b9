"""Pictures of pages as a browser shows them, and what a browser says about a page's layout: Chromium, without a window.

Chromium resolves no host name here, so that a page which needs another host looks as it does without that host.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

__all__ = ["chromium_program", "run_script", "take_picture"]

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
_TIMEOUT_S = 120


def chromium_program() -> str:
    """Return the path of Chromium.

    Raises
    ------
    FileNotFoundError
        If the machine has none.
    """
    for name in _PROGRAMS:
        if program := shutil.which(name):
            return program
    raise FileNotFoundError(
        "there is no chromium on PATH: apt-get install --no-install-recommends chromium fonts-dejavu-core"
    )


def take_picture(page: Path, out: Path, *, width: int, height: int, dark: bool = False, trim: bool = False) -> None:
    """Write a picture of the upper part of a page.

    Parameters
    ----------
    page : Path
        A file that Chromium shows, such as HTML or SVG.
    out : Path
        The PNG to write.
    width, height : int
        Size of the window, in pixels.
    dark : bool
        The reader prefers dark pages.
    trim : bool
        Leave out what has the colour of the upper left corner above and below the rest.

    Raises
    ------
    FileNotFoundError
        If there is no Chromium, or no such page.
    RuntimeError
        If Chromium writes no picture.
    """
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / "drawn.png"
        said = _run(page, f"--screenshot={drawn}", f"--window-size={width},{height}", *_preference(dark))
        if not drawn.exists():
            raise RuntimeError(f"chromium drew no picture of {page}: {said.stderr[-2000:]}")
        with Image.open(drawn) as picture:
            flat = picture.convert("RGB")
            if trim:
                background = Image.new("RGB", flat.size, flat.getpixel((0, 0)))
                _, top, _, bottom = ImageChops.difference(flat, background).getbbox() or (0, 0, *flat.size)
                flat = flat.crop((0, top, flat.width, bottom))
            flat.save(out, optimize=True)


def run_script(page: Path, script: str, *, width: int, height: int = 1000, dark: bool = False) -> str:
    """Return what a script finds in a page of HTML, as text.

    Parameters
    ----------
    page : Path
        A file of HTML.
    script : str
        An expression of JavaScript. It is evaluated when the page is complete.
    width, height : int
        Size of the window, in pixels.
    dark : bool
        The reader prefers dark pages.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "page.html"
        end = (
            "<script>addEventListener('load',()=>{document.documentElement.innerHTML='<pre>'+("
            + script
            + ")+'</pre>'})"
        )
        asked.write_text(page.read_text(encoding="utf-8") + end + "</script>", encoding="utf-8")
        said = _run(asked, "--dump-dom", f"--window-size={width},{height}", *_preference(dark))
    before, _, rest = said.stdout.partition("<pre>")
    if not rest:
        raise RuntimeError(f"chromium did not run the script: {(before + said.stderr)[-2000:]}")
    return rest.partition("</pre>")[0]


def _preference(dark: bool) -> list[str]:
    return [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]


def _run(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    if not page.exists():
        raise FileNotFoundError(f"there is no page {page}")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses root a sandbox
    with tempfile.TemporaryDirectory() as profile:
        return subprocess.run(
            [chromium_program(), *_OPTIONS, *sandbox, f"--user-data-dir={profile}", *options, page.resolve().as_uri()],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
