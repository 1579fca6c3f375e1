"""Pieces of a report's page: elements of HTML, and the style sheet."""

import html
from typing import Iterable, Optional, Sequence

_STYLE = '''
:root { color-scheme: light dark; --page: #fff; --ink: #1f2328; --line: #d5d9de;
  --soft: #f3f5f7; }
@media (prefers-color-scheme: dark) {
  :root { --page: #16181d; --ink: #e3e6ea; --line: #3a3f47; --soft: #20232a; } }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; background: var(--page);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
h1, h2, h3 { line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin-top: 2.5rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left;
  vertical-align: top; }
th { background: var(--soft); font-weight: 600; }
td { overflow-wrap: anywhere; min-width: 7rem; max-width: 28rem; }
.number { text-align: right; white-space: nowrap; min-width: 0; }
.grid { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)); }
.large { grid-template-columns: repeat(auto-fill, minmax(min(28rem, 100%), 1fr)); }
@media (max-width: 40rem) { table { font-size: .85rem; }
  th:not(.number) { overflow-wrap: anywhere; min-width: 6.5rem; } }
figure { margin: 0; min-width: 0; }
figcaption { font-size: .9rem; }
svg, img { display: block; width: 100%; height: auto; }
img { max-width: 30rem; }
.scroll > svg { min-width: 34rem; }
svg * { stroke-linecap: butt; stroke-linejoin: round; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; margin: .5rem 0; }
.legend span::before { content: ""; display: inline-block; width: 1.6rem;
  margin-right: .4rem; vertical-align: middle; border-top: var(--line-of); }
pre { overflow-x: auto; background: var(--soft); padding: .8rem; font-size: .85rem; }
code { overflow-wrap: anywhere; }
summary { cursor: pointer; margin: .5rem 0; }
'''


def page(title: str, parts: Iterable[str]) -> str:
  """Returns a page of HTML that needs no other file."""
  body = '\n'.join(filter(None, parts))
  return (f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
          '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
          f'<title>{text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n'
          f'<h1>{text(title)}</h1>\n{body}\n</body>\n</html>\n')


def text(value: str) -> str:
  """Returns a text as HTML."""
  return html.escape(value)


def paragraph(value: str) -> str:
  """Returns a text as a paragraph; nothing for an empty one."""
  return f'<p>{text(value)}</p>' if value else ''


def table(header: Sequence[str], rows: Iterable[Sequence[str]],
          numbers_from: Optional[int] = None) -> str:
  """Returns a table, whose first column names the rows.

  Args:
    header: a text for each column; none for no header.
    rows: texts.
    numbers_from: the first column of numbers, if there are any.
  """
  def cell(value: str, column: int, head: bool) -> str:
    is_number = numbers_from is not None and column >= numbers_from
    name = 'th' if head else 'td'
    kind = ' class="number"' if is_number else ''
    return f'<{name}{kind}>{text(value)}</{name}>'

  def line(values: Sequence[str], is_header: bool) -> str:
    return '<tr>' + ''.join(
        cell(x, i, is_header or i == 0) for i, x in enumerate(values)) + '</tr>'

  lines = [line(header, True)] * bool(header) + [line(row, False) for row in rows]
  return '<div class="scroll"><table>\n' + '\n'.join(lines) + '\n</table></div>'


def figures(pictures: Iterable[str], kind: str = '') -> str:
  """Returns pictures in rows that wrap; `kind` is empty or `large`."""
  return (f'<div class="grid {kind}">\n' + '\n'.join(
      f'<figure>{x}</figure>' for x in pictures) + '\n</div>')


def captioned(picture: str, caption: str) -> str:
  """Returns a picture with a caption, for `figures`.

  Args:
    picture: an SVG element, which scrolls where it would be too small to be read, or
      the address of an image.
    caption: a text.
  """
  shown = (f'<div class="scroll">{picture}</div>' if picture.startswith('<svg')
           else f'<img src="{picture}" alt="{text(caption)}">')
  return f'{shown}<figcaption>{text(caption)}</figcaption>'


def legend(lines: Iterable[Sequence[str]]) -> str:
  """Returns a legend: the look of each line, as in CSS's `border`, and its label."""
  spans = ''.join(f'<span style="--line-of: {look}">{text(label)}</span>'
                  for look, label in lines)
  return f'<p class="legend">{spans}</p>' if spans else ''


def folded(summary: str, content: str, is_open: bool = False) -> str:
  """Returns content that a click unfolds, or folds if it `is_open`."""
  return (f'<details{" open" * is_open}><summary>{text(summary)}</summary>\n'
          f'{content}\n</details>')
