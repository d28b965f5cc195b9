"""Parts of a page that `iswitch report` writes: charts as SVG, tables, style, and the progress of a training.

No module here reads a switch: `iswitch.tools` does.
"""
