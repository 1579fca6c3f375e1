"""Writes deploy/requirements/: what the image installs, with the sha256 of each file.

The versions are those of requirements.lock. Run it after that file has changed, with
Python 3.11 and pip 24 or later on Linux x86-64, as the image has them:

    docker run --rm -v "$PWD:/src" -w /src python:3.11-slim-bookworm python deploy/hashes.py

Any such machine will do whose glibc is not newer than the image's, 2.36.
"""

import json
import os
import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_EXTRAS = 'cpu', 'gpu', 'serve', 'envs'
_INDEX = 'https://files.pythonhosted.org/'


def _lines(*wanted: str) -> list[str]:
  """Returns what pip would install into an empty environment, a line each."""
  done = subprocess.run(
      [sys.executable, '-m', 'pip', 'install', '--quiet', '--dry-run',
       '--ignore-installed', '--report=-', *wanted], cwd=_ROOT, check=True,
      stdout=subprocess.PIPE, env={
          # Files of a local index may have other hashes.
          **os.environ, 'PIP_CONFIG_FILE': os.devnull, 'PIP_FIND_LINKS': '',
          'PIP_CONSTRAINT': str(_ROOT / 'requirements.lock')})
  found = []
  for item in json.loads(done.stdout)['install']:
    download, metadata = item['download_info'], item['metadata']
    if metadata['name'].replace('-', '_') == 'gtrxl_tf':
      continue
    if not download['url'].startswith(_INDEX):
      raise ValueError(f'{download["url"]}: expected a file of {_INDEX}')
    found.append(f'{metadata["name"]}=={metadata["version"]} '
                 f'--hash=sha256:{download["archive_info"]["hashes"]["sha256"]}')
  return sorted(found, key=str.lower)


def main() -> None:
  if sys.version_info[:2] != (3, 11):
    raise SystemExit('hashes.py: expected Python 3.11, as in the image, '
                     f'got {sys.version.split()[0]}')
  for name, wanted in (('build', ['setuptools', 'wheel']),
                       *((extra, [f'.[{extra},online]']) for extra in _EXTRAS)):
    text = '# Written by deploy/hashes.py, for Python 3.11 on Linux x86-64.\n'
    text += ''.join(line + '\n' for line in _lines(*wanted))
    (_ROOT / f'deploy/requirements/{name}.txt').write_text(text, encoding='utf-8')


if __name__ == '__main__':
  main()
