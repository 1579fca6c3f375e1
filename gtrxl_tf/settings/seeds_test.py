"""Tests of seeds.py."""

import itertools

from absl.testing import absltest

from gtrxl_tf.settings import seeds


class SeedsTest(absltest.TestCase):

  def test_no_streams_coincide(self):
    numbers = [(), (0,), (1,), (0, 0), (0, 1), (1, 0)]
    drawn = [
        tuple(seeds.sequence(seed, stream, *of_part).generate_state(2))
        for seed, stream, of_part in itertools.product(
            [0, 1, 2**32], seeds.Stream, numbers)]
    self.assertLen(set(drawn), len(drawn))

  def test_the_stream_never_changes(self):
    self.assertEqual(
        seeds.sequence(1, seeds.Stream.COLLECTION, 2).generate_state(2).tolist(),
        [3100940326, 246458069])


if __name__ == '__main__':
  absltest.main()
