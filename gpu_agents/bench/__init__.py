"""The test of a reward: completions of rows are scored twice, and a report says what to think of the reward."""
