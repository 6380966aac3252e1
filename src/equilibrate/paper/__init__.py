"""The paper's experiments: compute, record, draw. Needs the extra `equilibrate[paper]`."""
