"""RL algorithms as pure functions over tensors: reward shaping, advantages, importance weights, KL, losses.

Each choice of the RunSpec is one entry of a table: `advantages.MEANS`, `advantages.STDS`, `kl.KL_ESTIMATORS`,
`losses.OBJECTIVES`.
"""
