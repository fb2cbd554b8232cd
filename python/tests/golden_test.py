# SPDX-License-Identifier: Apache-2.0
"""A whole U-net against the results of the engine that its users come from."""
import pytest
import torch
from support.golden_net import MinkUNet, MinkUNet34C, fill_by_formula

import MinkowskiEngine as ME


@pytest.fixture(scope="module")
def one_step(golden):
    def run(dtype):
        net = MinkUNet(3, 20)
        fill_by_formula(net)
        net.to(dtype)
        x = ME.SparseTensor(golden["features"].to(dtype), golden["coordinates"])
        logits = net(x)
        loss = torch.nn.functional.cross_entropy(logits.F, golden["labels"])
        loss.backward()
        return net, logits, loss

    return {dtype: run(dtype) for dtype in (torch.float32, torch.float64)}


def test_logits_loss_and_running_statistics(golden, one_step):
    net, logits, loss = one_step[torch.float32]
    assert torch.equal(logits.C, golden["coordinates"])
    wanted = golden["logits"]
    assert (logits.F - wanted).abs().max() < 1e-3 * wanted.abs().max()
    assert loss.item() == pytest.approx(golden["loss"].item(), abs=1e-4)
    compared = 0
    for name, buffer in net.named_buffers():
        if f"buffer/{name}" in golden:
            assert torch.allclose(buffer, golden[f"buffer/{name}"], rtol=1e-3, atol=1e-4), name
            compared += 1
    assert compared == sum(key.startswith("buffer/") for key in golden)


def test_gradients(golden, one_step):
    # Float32's gradients at the coarsest levels, of batch norms over few points, are some percent of noise: the golden
    # norms were made in it. Close to the output they must agree closely.
    net, _, loss = one_step[torch.float64]
    assert loss.item() == pytest.approx(golden["loss"].item(), abs=1e-6)
    for name, param in net.named_parameters():
        near = name.startswith(("final", "block8", "convtr7"))
        wanted = golden[f"grad_norm/{name}"].item()
        assert param.grad.norm().item() == pytest.approx(wanted, rel=4e-3 if near else 0.8), name


@pytest.mark.parametrize(
    "net, file", [(MinkUNet, "minkunet14a-state-dict.txt"), (MinkUNet34C, "minkunet34c-state-dict.txt")]
)
def test_names_and_shapes_of_the_state_dict(golden_folder, net, file):
    lines = [f"{name} {list(value.shape)}" for name, value in net(3, 20).state_dict().items()]
    assert lines == (golden_folder / file).read_text().splitlines()


def test_the_same_bits_for_any_number_of_threads(golden, one_step):
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        net = MinkUNet(3, 20)
        fill_by_formula(net)
        logits = net(ME.SparseTensor(golden["features"], golden["coordinates"])).F
        logits.square().mean().backward()
        results.append([logits.detach(), *(param.grad for param in net.parameters())])
    torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))
