"""Statistics of noisy trials: gains, step times, efficiency ratios, verdicts, noise. Pure: values in, values out."""
