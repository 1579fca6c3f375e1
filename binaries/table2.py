"""Prints Table 2 of the GTrXL paper beside the parameter counts of this library."""

from gtrxl_tf.launch import program


def main() -> None:
  # pylint: disable=import-outside-toplevel
  from gtrxl_tf.networks import table2

  line = '| {:<16} | {:>5} | {:>10} | {:>5} |'.format
  print(line('Model', 'Paper', 'Here', 'Here'))
  print(line('-' * 16, '-' * 4 + ':', '-' * 9 + ':', '-' * 4 + ':'))
  for row in table2.ROWS:
    count = table2.parameter_count(row)
    digits = len(row.millions.partition('.')[2])
    print(line(row.model, row.millions + 'M', f'{count:,}',
               f'{count / 1e6:.{digits}f}M'))


if __name__ == '__main__':
  program.run(main)
