"""What a campaign trains on: the generated model, generated and prepared data, and rewards that verl loads by path."""
