"""Models that fail, each in its own way, in stage 1; test_distributed runs them in real processes."""

import os
import signal
import time

import torch
from torch import nn

from pplab.distributed.models import Model


class Fails(nn.Module):
    """Fails on the micro-batch that it meets as its fourth, once a flag says that the run has begun."""

    def __init__(self, how):
        super().__init__()
        self.how, self.met = how, 0

    def forward(self, x):
        self.met += torch.is_grad_enabled()  # the check of the boundaries runs without gradients
        if self.met == 4:
            self.how()
        return x


class _Faulty(Model):
    def stage(self, stage, num_stages):
        module = super().stage(stage, num_stages)
        return nn.Sequential(module, self.part()) if stage == 1 else module


class Raises(_Faulty):
    def part(self):
        def fail():
            raise ValueError("a wrong turn")

        return Fails(fail)


class Killed(_Faulty):
    def part(self):
        return Fails(lambda: os.kill(os.getpid(), signal.SIGKILL))


class Leaves(_Faulty):
    def part(self):
        return Fails(lambda: os._exit(0))


class Hangs(_Faulty):
    def part(self):
        return Fails(lambda: time.sleep(1000))


class Speaks(_Faulty):
    def part(self):
        return Fails(lambda: print("hello from the model"))


class OtherShape(_Faulty):
    def part(self):
        return nn.Flatten()


class NotContiguous(_Faulty):
    def part(self):
        class Turned(nn.Module):
            def forward(self, x):
                return x.permute(2, 1, 0).contiguous().permute(2, 1, 0)

        return Turned()


class ShapeChanges(_Faulty):
    def part(self):
        class Shrinks(nn.Module):
            met = 0

            def forward(self, x):
                self.met += 1
                return x if self.met < 3 else x[:1]

        return Shrinks()
