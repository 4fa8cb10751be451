"""VerifiedLinear against the contract and against nn.Linear; the models; verify_model."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from daisychain import kernels, numerics
from daisychain.base.errors import ConfigError, NonFiniteError
from daisychain.nn import MLP, Transformer, TransformerConfig, VerifiedLinear, make_linear, verify_model
from daisychain.units.counts import counts


def bits(tensor):
    return tensor.detach().contiguous().numpy().view(np.int32)


def layer(n_in=200, n_out=50, **options):
    torch.manual_seed(0)
    return VerifiedLinear(n_in, n_out, **options)


def test_forward_and_backward_are_the_contracts_products():
    linear, x = layer(), torch.randn(30, 200, requires_grad=True)
    y = linear(x)
    gradient = torch.randn(30, 50)
    y.backward(gradient)
    weight, inputs = linear.weight.detach().numpy(), x.detach().numpy()
    forward = torch.from_numpy(numerics.product(inputs, weight)) + linear.bias.detach()
    assert np.array_equal(bits(y), bits(forward))
    dx = numerics.product(gradient.numpy(), np.ascontiguousarray(weight.T))
    dw = numerics.product(np.ascontiguousarray(gradient.numpy().T), np.ascontiguousarray(inputs.T))
    assert np.array_equal(bits(x.grad), dx.view(np.int32))
    assert np.array_equal(bits(linear.weight.grad), dw.view(np.int32))
    assert torch.equal(linear.bias.grad, gradient.sum(0))


def test_float_backward_is_torchs_and_triple_is_nearly_float():
    x = torch.randn(30, 200)
    reference = nn.Linear(200, 50)
    results = {}
    for name, options in {"float": {"backward": "float"}, "int8": {}, "triple": {"triple": True}}.items():
        linear = layer(**options)
        linear.load_state_dict(reference.state_dict())
        inputs = x.clone().requires_grad_()
        linear(inputs).square().sum().backward()
        results[name] = (linear(x).detach(), inputs.grad, linear.weight.grad)
    inputs = x.clone().requires_grad_()
    reference(inputs).square().sum().backward()
    exact = (reference(x).detach(), inputs.grad, reference.weight.grad)

    def error(name):
        return [float((a - b).norm() / b.norm()) for a, b in zip(results[name], exact, strict=True)]

    assert max(error("triple")) < 3e-4
    assert min(error("int8")) > 1e-3
    assert max(error("int8")) < 0.03
    assert max(error("float")) < 0.02


def test_relu_on_the_unit():
    linear, x = layer(relu=True), torch.randn(30, 200)
    plain = layer()
    plain.load_state_dict(linear.state_dict())
    y = linear(x)
    assert np.array_equal(bits(y), numerics.block_relu(plain(x).detach().numpy()).view(np.int32))
    y.sum().backward()
    passed = (y > 0).float()
    assert torch.equal(linear.bias.grad, passed.sum(0))


def test_the_gradient_of_a_sequence_does_not_depend_on_the_batch():
    linear = layer(32, 16)
    x = torch.randn(4, 50, 32)

    def weight_gradient(part):
        linear.zero_grad()
        linear(part).square().sum().backward()
        return linear.weight.grad.clone()

    together = weight_gradient(x)
    apart = sum(weight_gradient(x[i : i + 1]) for i in range(4))
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-6 * float(together.abs().max()))


def test_an_empty_batch_has_a_zero_gradient_and_demotes_nothing():
    linear = layer()
    before = kernels.default().active.name
    linear(torch.randn(0, 200)).sum().backward()
    assert torch.equal(linear.weight.grad, torch.zeros(50, 200))
    assert kernels.default().active.name == before


def test_triple_has_the_contracts_bits():
    linear, x = layer(triple=True, bias=False), torch.randn(30, 200)
    wanted = numerics.triple_product(x.numpy(), linear.weight.detach().numpy())
    assert np.array_equal(bits(linear(x)), wanted.view(np.int32))


def test_other_types_and_shapes_are_refused_without_blaming_the_kernel():
    linear = layer()
    before = kernels.default().active.name
    with pytest.raises(ConfigError, match=r"not torch\.float64"):
        linear(torch.randn(2, 200).double())
    with pytest.raises(ConfigError, match="contractions 3 and 200"):
        linear(torch.randn(2, 3))
    assert kernels.default().active.name == before


@pytest.mark.parametrize("shape", [(200,), (3, 200), (2, 3, 200), (2, 1, 3, 200), (0, 200)])
def test_any_leading_shape_is_a_drop_in(shape):
    linear = layer()
    x = torch.randn(shape, requires_grad=True)
    y = linear(x)
    assert y.shape == (*shape[:-1], 50)
    y.sum().backward()
    assert x.grad.shape == shape


def test_expanded_and_transposed_inputs():
    linear = layer(4, 4)
    x = torch.randn(4, 6)
    assert torch.equal(linear(x.t()), linear(x.t().contiguous()))
    assert torch.equal(linear(torch.randn(1, 4).expand(5, 4)).std(0), torch.zeros(4))


def test_nan_is_refused_not_trained_on():
    x = torch.zeros(2, 200)
    x[1, 7] = torch.nan
    linear = layer()
    with pytest.raises(NonFiniteError, match="1 of 400 values"):
        linear(x)


def test_products_are_counted():
    counts.reset()
    layer()(torch.randn(3, 200))
    assert counts.total("multiply") == 3 * 200 * 50
    counts.require({"multiply": 30_000, "requantise": 10_600})


def test_verify_model_keeps_weights_ties_and_subclasses():
    class Own(nn.Linear):
        pass

    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Sequential(nn.Linear(8, 8, bias=False), Own(8, 2)))
    model[2][0].weight = model[0].weight
    before = copy.deepcopy(model)
    parameters = list(model.parameters())
    verify_model(model)
    assert isinstance(model[0], VerifiedLinear)
    assert type(model[2][1]) is Own
    assert model[2][0].weight is model[0].weight
    assert [id(p) for p in model.parameters()] == [id(p) for p in parameters]
    x = torch.randn(5, 8)
    torch.testing.assert_close(model(x), before(x), atol=0.05, rtol=0.05)
    assert isinstance(verify_model(nn.Linear(3, 3)), VerifiedLinear)
    repeated = nn.Linear(3, 3)
    twice = verify_model(nn.Sequential(repeated, nn.ReLU(), repeated))
    assert isinstance(twice[0], VerifiedLinear)
    assert twice[2] is twice[0]
    with pytest.raises(ConfigError, match="float64"):
        verify_model(nn.Linear(3, 3).double())


@pytest.mark.parametrize("arithmetic", ["int8", "int8x3", "float"])
def test_models_learn_in_every_arithmetic(arithmetic):
    torch.manual_seed(1)
    mlp = MLP([4, 32, 2], arithmetic)
    transformer = Transformer(TransformerConfig(17, 16, 1, 2, 12, arithmetic))
    x, ids = torch.randn(64, 4), torch.arange(48).reshape(4, 12) % 17
    y = (x[:, 0] * x[:, 1] > 0).long()

    def mlp_loss():
        return nn.functional.cross_entropy(mlp(x), y)

    def transformer_loss():
        return nn.functional.cross_entropy(transformer(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    for model, loss in ((mlp, mlp_loss), (transformer, transformer_loss)):
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        first = loss().item()
        for _ in range(40):
            optimizer.zero_grad()
            loss().backward()
            optimizer.step()
        assert loss().item() < first / 2


def test_weights_have_the_same_names_in_every_arithmetic():
    int8, plain = (MLP([4, 8, 2], arithmetic) for arithmetic in ("int8", "float"))
    plain.load_state_dict(int8.state_dict())
    x = torch.randn(5, 4)
    torch.testing.assert_close(plain(x), int8(x), atol=0.05, rtol=0.05)


def test_a_transformer_looks_only_back():
    torch.manual_seed(2)
    model = Transformer(TransformerConfig(20, 16, 2, 4, 16))
    ids = torch.randint(0, 20, (1, 16))
    other = ids.clone()
    other[0, 10:] = (other[0, 10:] + 1) % 20
    assert torch.equal(model(ids)[:, :10], model(other)[:, :10])
    assert not torch.equal(model(ids)[:, 10:], model(other)[:, 10:])


def test_bad_settings_say_what_is_allowed():
    with pytest.raises(ConfigError, match="use 'int8' or 'float'"):
        VerifiedLinear(2, 2, backward="int4")
    with pytest.raises(ConfigError, match="int8, int8x3 or float"):
        make_linear(2, 2, "int4")
    with pytest.raises(ConfigError, match="multiple of heads"):
        TransformerConfig(width=10, heads=4)
    with pytest.raises(ConfigError, match="at least 1"):
        TransformerConfig(layers=0)
    with pytest.raises(ConfigError, match="more than the model's sequence 8"):
        Transformer(TransformerConfig(sequence=8))(torch.zeros(1, 9, dtype=torch.int64))
