"""One flat gradient: layout, order of sending, and what happens when something breaks."""

import numpy as np
import pytest
import torch
from torch import nn

from daisychain.base.errors import NonFiniteError, TaskError
from daisychain.cluster.fleet import SoloFleet
from daisychain.cluster.gradients import FlatGradient, bucket_starts
from daisychain.cluster.replica import Replica, merge_buffers


class ListeningFleet(SoloFleet):
    """Notes each sum: where in the flat vector, whether backward was still under way, and the values."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int, bool, np.ndarray]] = []
        self.in_backward = False

    def start_sum(self, buffer):
        self.sent.append((buffer.storage_offset(), buffer.numel(), self.in_backward, buffer.numpy().copy()))
        return super().start_sum(buffer)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(2, 2)
        self.a = nn.Linear(4, 8)
        self.b = nn.Linear(8, 8)
        self.c = nn.Linear(8, 3)

    def forward(self, x):
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


def built(bucket_bytes=100):
    torch.manual_seed(0)
    net = Net()
    fleet = ListeningFleet()
    replica = Replica(net)
    return net, fleet, replica, FlatGradient(replica, fleet, bucket_bytes)


def backward(fleet, loss):
    fleet.in_backward = True
    try:
        loss.backward()
    finally:
        fleet.in_backward = False


def test_parameters_become_views_and_keep_their_values():
    torch.manual_seed(0)
    before = {name: p.detach().clone() for name, p in Net().named_parameters()}
    net, _, replica, _ = built()
    assert all(torch.equal(p, before[name]) for name, p in net.named_parameters())
    version = net.a.weight._version
    replica.flat += np.float32(1)
    replica.publish()
    assert all(torch.equal(p, before[name] + 1) for name, p in net.named_parameters())
    assert net.a.weight._version > version  # whoever caches by version sees the change


def test_buckets_cover_everything_from_the_end():
    edges = [0, 10, 30, 31, 100, 120]
    for size in (1, 40, 100, 400, 10_000):
        starts = bucket_starts(edges, size)
        assert starts[-1] == 0
        assert starts == sorted(starts, reverse=True)
    assert bucket_starts(edges, 1) == [4, 3, 2, 1, 0]
    assert bucket_starts(edges, 10_000) == [0]
    assert bucket_starts(edges, 84) == [3, 1, 0]


def test_buckets_leave_in_order_while_backward_goes_on():
    net, fleet, replica, gradient = built()
    x = torch.randn(5, 4)
    for _ in range(2):
        fleet.sent.clear()
        gradient.begin()
        backward(fleet, net(x).square().sum())
        gradient.finish(False)
        gradient.wait()
        ends = [offset + size for offset, size, _, _ in fleet.sent]
        assert ends[0] == replica.flat.size
        assert [offset for offset, _, _, _ in fleet.sent] == [*ends[1:], 0]
        assert sum(early for _, _, early, _ in fleet.sent) >= 3
    other = Net()
    other.load_state_dict(net.state_dict())
    other(x).square().sum().backward()
    reference = [torch.zeros_like(p) if p.grad is None else p.grad for p in other.parameters()]
    np.testing.assert_array_equal(gradient.sums, torch.cat([g.reshape(-1) for g in reference]).numpy())


def test_a_gradient_that_is_not_finite_is_named_and_the_rest_goes_out_as_zeros():
    net, fleet, _, gradient = built()
    gradient.begin()
    hook = net.b.weight.register_hook(lambda g: torch.where(g == g[0, 1], torch.nan, g))
    with pytest.raises(NonFiniteError, match=r"1 of 64 gradients of b\.weight are NaN or infinite"):
        backward(fleet, net(torch.randn(5, 4)).square().sum())
    gradient.finish(True)
    assert sum(size for _, size, _, _ in fleet.sent) == gradient.sums.size
    assert all(np.isfinite(values).all() for _, _, _, values in fleet.sent)
    hook.remove()
    fleet.sent.clear()
    gradient.begin()
    backward(fleet, net(torch.randn(5, 4)).square().sum())
    gradient.finish(False)
    assert sum(size for _, size, _, _ in fleet.sent) == gradient.sums.size


def test_an_infinity_in_the_last_bucket_is_found_at_the_end():
    net, fleet, _, gradient = built(bucket_bytes=1 << 30)
    gradient.begin()
    backward(fleet, net(torch.randn(5, 4)).sum() * float("inf"))
    with pytest.raises(NonFiniteError, match="NaN or infinite"):
        gradient.finish(False)
    assert not fleet.sent[0][3].any()


def test_large_finite_gradients_are_not_refused():
    """Their sum overflows, which must not be taken for an infinity among them."""
    net, fleet, _, gradient = built(bucket_bytes=1 << 30)
    gradient.begin()
    backward(fleet, net.c.weight.sum() * 3e38)
    gradient.finish(False)
    assert float(gradient.sums.max()) == pytest.approx(3e38)
    gradient.check_sums()


def test_a_sum_that_overflows_is_refused_though_every_part_was_finite():
    class Doubling(ListeningFleet):
        def start_sum(self, buffer):
            buffer *= 2
            return super().start_sum(buffer)

    net = Net()
    gradient = FlatGradient(Replica(net), Doubling())
    gradient.begin()
    (net.c.weight.sum() * 3e38).backward()
    gradient.finish(False)
    gradient.wait()
    with pytest.raises(NonFiniteError, match=r"sums over the nodes of c\.weight"):
        gradient.check_sums()


def test_nothing_computed_gives_zeros():
    _, fleet, _, gradient = built()
    gradient.begin()
    gradient.finish(False)
    assert not gradient.sums.any()
    assert len(fleet.sent) >= 4


def test_two_backwards_in_one_step_are_refused():
    net, _, _, gradient = built()
    gradient.begin()
    net(torch.randn(5, 4)).sum().backward()
    with pytest.raises(TaskError, match="arrived twice"):
        net(torch.randn(5, 4)).sum().backward()
    gradient.finish(True)
    gradient.close()
    net(torch.randn(5, 4)).sum().backward()  # let go of


def test_gradients_set_to_none_by_the_task_come_back():
    net, _, _, gradient = built()
    for _ in range(2):
        gradient.begin()
        net(torch.ones(1, 4)).sum().backward()
        gradient.finish(False)
        assert gradient.sums.any()
        net.zero_grad(set_to_none=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_parameters_other_than_float32_are_refused(dtype):
    with pytest.raises(TaskError, match=r"weight is torch\..*float32"):
        Replica(nn.Linear(2, 2).to(dtype))


def test_models_that_cannot_train_are_refused():
    with pytest.raises(TaskError, match="no trainable parameters"):
        Replica(nn.Linear(2, 2).requires_grad_(False))
    with pytest.raises(TaskError, match="no trainable parameters"):
        Replica(nn.ReLU())
    net = nn.Linear(2, 2)
    net.register_buffer("z", torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(TaskError, match="buffer z is"):
        Replica(net)


def test_merged_buffers_move_by_count_and_untouched_elements_keep_their_bits():
    old = np.array([-0.0, 1.0, -np.inf, 0.1], np.float32)
    mine, theirs = old.copy(), old.copy()
    mine[3], theirs[3] = 0.5, 0.3
    count = np.array(4)
    merged = merge_buffers(
        {"n": count, "x": old},
        ["n", "x"],
        [np.array(5).tobytes() + mine.tobytes(), count.tobytes() + theirs.tobytes()],
        [5, 27],
    )
    assert int(merged["n"]) == 5
    assert merged["x"][:3].tobytes() == old[:3].tobytes()
    assert merged["x"][3] == pytest.approx((5 * 0.5 + 27 * 0.3) / 32)
    assert merged["x"].dtype == np.float32
    theirs[3] = np.nan
    with pytest.raises(NonFiniteError, match="buffer x"):
        merge_buffers({"x": old}, ["x"], [mine.tobytes(), theirs.tobytes()], [5, 27])
