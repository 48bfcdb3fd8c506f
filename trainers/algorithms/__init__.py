"""What a step learns from: rewards become advantages, advantages and log-probabilities become a loss.

One small file per kind and one table per choice: `advantages.MEANS`, `advantages.STDS`, `losses.OBJECTIVES`.
"""
