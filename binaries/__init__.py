"""Programs. Each defines its flags, and imports in `main` what it works with: `--help`
and a wrong flag are answered at once, and a process that only starts others stays small.
"""
