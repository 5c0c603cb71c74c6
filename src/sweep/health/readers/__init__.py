"""Readers turn what verl leaves behind into `LoggedRun` values; these modules touch files, the rules never do.

`open_log.read_runs` picks the reader: `jsonl`, `console`, `csv_export` or `mlflow_run`.
"""
