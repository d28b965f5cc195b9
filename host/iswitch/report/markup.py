"""HTML of a page that needs no other file: its style, tables, notes and tiles. All text is escaped here."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape

__all__ = ["document", "fold", "notes", "section", "table", "tiles"]

_LIGHT = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")
_DARK = ("#60a5fa", "#fbbf24", "#34d399", "#f87171", "#a78bfa", "#22d3ee", "#f472b6", "#a3e635")


def _variables(colours: Sequence[str]) -> str:
    return "".join(f"--c{number}:{colour};" for number, colour in enumerate(colours))


_STYLE = (
    ":root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--text:#1c2430;--soft:#5b6675;--edge:#dfe3e9;"
    "--ok:#047857;--warning:#b45309;--bad:#b91c1c;" + _variables(_LIGHT) + "}"
    "@media (prefers-color-scheme:dark){:root{--page:#11151b;--card:#1a2029;--text:#e6eaf0;--soft:#9aa6b5;"
    "--edge:#2e3743;--ok:#34d399;--warning:#fbbf24;--bad:#f87171;"
    + _variables(_DARK)
    + "}}"
    + "".join(f".c{k}{{--own:var(--c{k})}}" for k in range(len(_LIGHT)))
    + """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:27px;line-height:1.2;margin:0 0 4px}
h2{font-size:19px;margin:38px 0 12px}
h3{font-size:15px;margin:20px 0 8px}
.lead,.note,.empty,footer{color:var(--soft)}
.lead{margin:0 0 18px}
.note,.empty{font-size:13px;margin:2px 0 6px}
.scroll+.note{margin-top:8px}
code{font:.92em ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;background:var(--page);border-radius:4px;
padding:0 .25em}
.empty{padding:48px 0;text-align:center}
footer{font-size:13px;margin-top:40px}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:10px;margin:0;padding:0}
@media (min-width:900px){.tiles{grid-template-columns:repeat(5,1fr)}}
.tiles div{display:flex;flex-direction:column;justify-content:space-between}
.tiles div{background:var(--card);border:1px solid var(--edge);border-radius:8px;padding:9px 12px}
.tiles dt{color:var(--soft);font-size:12px}
.tiles dd{margin:0;font-size:18px;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.notes{margin:16px 0 0;padding:10px 14px 10px 32px;border:1px solid var(--warning);border-radius:8px;
background:var(--card)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:14px}
.chart{margin:0;min-width:0;background:var(--card);border:1px solid var(--edge);border-radius:8px;padding:12px 14px}
figcaption{font-weight:600}
.chart>svg{display:block;width:100%;height:auto;margin-top:6px}
.legend{display:flex;flex-wrap:wrap;gap:2px 16px;margin:6px 0 0;padding:0;list-style:none;font-size:13px}
.key{width:22px;height:8px;margin-right:6px}
.tick,.label{fill:var(--soft);font-size:13px;font-variant-numeric:tabular-nums}
.end{text-anchor:end}
.middle{text-anchor:middle}
.grid{stroke:var(--edge)}
.axis{stroke:var(--soft)}
.line{fill:none;stroke:var(--own);stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.dashed{stroke-dasharray:5 4}
.dot,.part{fill:var(--own)}
.slice rect{fill:transparent;pointer-events:all}
.slice line{stroke:var(--soft);stroke-opacity:0;pointer-events:none}
.slice:hover line{stroke-opacity:.7}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--edge);border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:14px}
th,td{padding:6px 12px;text-align:left;vertical-align:top;border-bottom:1px solid var(--edge)}
tr:last-child td{border-bottom:0}
th{color:var(--soft);font-size:12px;font-weight:600;white-space:nowrap}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
tr.ok td:first-child{color:var(--ok);font-weight:600}
tr.warning td:first-child{color:var(--warning);font-weight:600}
tr.bad td:first-child{color:var(--bad);font-weight:600}
tr.dim{color:var(--soft)}
details{margin-top:12px}
summary{cursor:pointer;margin-bottom:8px}
@media print{body{background:#fff}.chart,.scroll{break-inside:avoid}}
"""
)


def document(title: str, lead: str, body: Iterable[str], footer: str) -> str:
    """Return a whole page.

    Parameters
    ----------
    title, lead, footer : str
        Text of the heading, of the line below the heading, and of the last line.
    body : iterable of str
        Sections, as HTML.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>\n'
        + "\n".join(body)
        + f"\n<footer>{escape(footer)}</footer>\n</main>\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """Return a section with a heading. `parts` are HTML."""
    return f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def fold(summary: str, *parts: str) -> str:
    """Return HTML that the reader unfolds. `parts` are HTML."""
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def tiles(values: Mapping[str, object]) -> str:
    """Return values, each in a box with its name."""
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(str(value))}</dd></div>" for name, value in values.items())
    return f'<dl class="tiles">{rows}</dl>'


def notes(sentences: Sequence[str]) -> str:
    """Return a list of sentences in a box; "" if there is no sentence."""
    rows = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<ul class="notes">{rows}</ul>' if rows else ""


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    numbers: Collection[str] = (),
    styles: Sequence[str] = (),
    empty: str = "",
) -> str:
    """Return a table.

    Parameters
    ----------
    columns : sequence of str
        Names of the columns.
    rows : iterable of sequence of object
        Cells, of which the table shows `str`. Words between backticks are code.
    numbers : collection of str
        Columns of numbers, which stand at the right.
    styles : sequence of str
        A class for each row; empty for no classes.
    empty : str
        The sentence in place of a table without rows.
    """
    sides = [' class="number"' if name in numbers else "" for name in columns]
    head = "".join(f"<th{side}>{escape(name)}</th>" for side, name in zip(sides, columns))
    body = ""
    for number, row in enumerate(rows):
        style = f' class="{escape(styles[number])}"' if styles and styles[number] else ""
        cells = "".join(f"<td{side}>{_cell(str(cell))}</td>" for side, cell in zip(sides, row))
        body += f"<tr{style}>{cells}</tr>"
    if not body:
        return f'<p class="note">{escape(empty)}</p>'
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(text: str) -> str:
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
