"""Closures as people write them, and a regression to run in one."""

import torch
from torch import nn


def closure_of(optimizer, loss, zero="inside", counter=None):
    def closure():
        if counter is not None:
            counter.append(optimizer.measuring)
        if zero == "inside":
            optimizer.zero_grad()
        elif zero == "in place":
            optimizer.zero_grad(set_to_none=False)
        value = loss()
        value.backward()
        return value

    return closure


def regression(activation):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), activation(), nn.Linear(30, 4))
    data, target = torch.randn(64, 20), torch.randn(64, 4)
    return model, lambda: (model(data).float() - target).square().mean()
