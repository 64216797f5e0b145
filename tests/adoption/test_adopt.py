"""Models of other libraries become runs that every function takes."""

from __future__ import annotations

import copy
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import unbraid as ub
from support.foreign_models import LATENTS, PIXELS, SIDE, Branching, LibraryVAE, PairVAE, SpatialVAE, plain_pair
from unbraid.data.dataset import FactorData
from unbraid.errors import UserError
from unbraid.nets.any_model import read_posterior
from unbraid.noise import Noise
from unbraid.runs.adopted_model import ModelFile, check_network, graph_network
from unbraid.runs.folder import find_runs
from unbraid.runs.results import load_results, write_results
from unbraid.studies.publishing import import_published, publish

X = slice(0, 20)


@pytest.fixture(scope="module")
def library() -> LibraryVAE:
    torch.manual_seed(1)
    return LibraryVAE()


@pytest.fixture(scope="module")
def images(glyphs: FactorData) -> Any:
    """Data in memory, as a user has them."""
    index = torch.arange(len(glyphs))
    factors = {name: glyphs.factors(index)[:, i].numpy() for i, name in enumerate(glyphs.names)}
    return ub.data.from_arrays(glyphs.images(index), factors)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, library: LibraryVAE, images: Any) -> Path:
    """A folder with a model like those of pythae and two pairs of plain modules with different seeds."""
    out = tmp_path_factory.mktemp("adopted")
    assert library.training
    ub.adopt(library, images, "library VAE", out=out, save_data=True, settings={"beta": 4.0})
    assert library.training  # the original is not changed
    for seed in (0, 1):
        torch.manual_seed(seed)
        ub.adopt(plain_pair(), images, "plain", out=out, seed=seed)
    return out


def find(folder: Path, label: str) -> ub.Run:
    (run,) = (run for run in ub.load_runs(folder) if run.label == label)
    return run


def test_codes_and_images_are_those_of_the_model(folder: Path, library: LibraryVAE, images: Any) -> None:
    run = find(folder, "library VAE beta=4")
    model, x = copy.deepcopy(library).eval(), images.batch(torch.arange(20))
    q = run.posterior(x)
    with torch.no_grad():
        expected = model.encoder(x)
        torch.testing.assert_close(q.mean, expected["embedding"])
        torch.testing.assert_close(q.logvar, expected["log_covariance"])
        torch.testing.assert_close(run.decode(q.mean), model.decoder(q.mean)["reconstruction"])


def test_a_run_is_a_snapshot_and_needs_no_code(folder: Path) -> None:
    files = {file.name for file in find(folder, "plain seed=0").path.iterdir()}  # type: ignore[union-attr]
    assert {"run.json", "model.json", "weights.safetensors"} <= files
    content = json.loads((find(folder, "library VAE beta=4").path / "run.json").read_text())  # type: ignore[operator]
    assert set(content["spec"]) == {"method", "data", "seed", "latents", "model"}  # no invented settings
    assert content["spec"]["method"] == {"name": "library VAE", "beta": 4.0}
    assert "LibraryVAE" not in json.dumps(content)


def test_scores_name_the_model_and_no_settings_that_are_not_known(folder: Path, images: Any) -> None:
    rows = {row["label"]: row for row in ub.score(ub.load_runs(folder), ["mig"], quiet=True)}
    assert set(rows) == {"library VAE beta=4", "plain seed=0", "plain seed=1"}
    row = rows["library VAE beta=4"]
    assert (row["method"], row["beta"], row["latents"], row["seed"]) == ("library VAE", 4.0, LATENTS, None)
    assert not {"steps", "batch", "learning_rate", "likelihood", "net"} & set(row)
    run = find(folder, "library VAE beta=4")
    everything = torch.arange(len(images))
    (alone,) = ub.score(
        codes=run.encode(images.batch(everything)), factors=images.factors(everything), metrics=["mig"], quiet=True
    )
    assert abs(row["mig.discrete_mig"] - alone["mig.discrete_mig"]) < 0.2  # other rows of the same few examples
    assert "mig.discrete_mig.sampled" in row
    assert "mig.discrete_mig.sampled" not in rows["plain seed=0"]


def test_every_function_takes_adopted_runs(folder: Path, tmp_path: Path) -> None:
    runs = ub.load_runs(folder)
    ranked = ub.select([run for run in runs if run.label.startswith("plain")], examples=48, quiet=True)
    assert {row["method"] for row in ranked} == {"plain"}
    for run in (runs[0], runs[-1]):
        picture = ub.traverse(run, out=tmp_path / run.id)
        assert len(picture.labels) == LATENTS
        assert all(path.exists() for path in picture.paths)
    page = ub.report(folder, tmp_path / "report.html", scoring=False, quiet=True).read_text()
    assert "library VAE" in page
    assert '"why":"' in page or "data-weights" in page  # the page runs the decoder, or says why it cannot
    with ub.explore(folder) as server:
        assert server.url.startswith("http://127.0.0.1")


def test_comparisons_treat_models_without_a_seed_as_models_of_different_seeds(images: Any, tmp_path: Path) -> None:
    for side in ("a", "b"):
        for _ in range(3):
            ub.adopt(
                nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 2)), images, side, out=tmp_path / side, save_data=True
            )
    comparison = ub.compare(tmp_path / "a", tmp_path / "b", metrics=["mig"], score=True, quiet=True)
    assert [test.metric for test in comparison.tests] == ["mig"]
    assert comparison.settings()["method"] == ["a", "b"]
    assert comparison.settings()["seed"] == ["-", "-"]
    assert "model" not in comparison.settings()


@pytest.mark.filterwarnings("ignore:.*are the same model")
def test_the_same_weights_under_two_seeds_count_once(images: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    pair, others = plain_pair(), [plain_pair() for _ in range(3)]
    ub.adopt(pair, images, "plain", out=tmp_path / "a", seed=0)
    with pytest.warns(RuntimeWarning, match=r"a already has this model with the same weights: plain seed=0 \(\w{12}\)"):
        ub.adopt(pair, images, "plain", out=tmp_path / "a", seed=1)
    for seed, other in enumerate(others):
        ub.adopt(other, images, "other", out=tmp_path / "b", seed=seed)
    for name in "ab":
        ub.score(ub.load_runs(tmp_path / name, data=images), "mig", quiet=True)
    found = ub.compare(tmp_path / "a", tmp_path / "b")
    assert [len(side.runs) for side in found.sides] == [1, 3]
    assert found.settings()["seed"] == ["0", "0, 1, 2"]
    assert any(remark.startswith("1 run(s) of a are left out, because another run has") for remark in found.remarks)


def test_results_tables_and_published_folders_contain_adopted_runs(folder: Path, tmp_path: Path) -> None:
    write_results(folder)
    table = load_results(folder)
    assert sorted(table["method"]) == ["library VAE", "plain", "plain"]
    assert set(table["setting.beta"].dropna()) == {4.0}
    assert not {"steps", "batch", "learning_rate"} & set(table)
    publish(folder, tmp_path / "published")
    assert import_published(tmp_path / "published", tmp_path / "copied") == 3
    data = ub.data.from_arrays(np.zeros((8, 1, SIDE, SIDE), np.uint8))
    copied, original = (ub.load_runs(path, data)[0] for path in (tmp_path / "copied", folder))
    torch.testing.assert_close(copied.decode(torch.ones(1, LATENTS)), original.decode(torch.ones(1, LATENTS)))


@pytest.mark.slow
@pytest.mark.parametrize("format", ["onnx", "torch"])
def test_adopted_runs_can_be_exported(folder: Path, tmp_path: Path, format: str) -> None:
    facts = ub.export(find(folder, "library VAE beta=4"), tmp_path, format=format, quiet=True)
    assert len(facts["files"]) == 2


def test_training_in_the_same_folder_leaves_adopted_runs_alone(folder: Path, images: Any) -> None:
    before = {file: file.read_bytes() for file in folder.glob("*/*") if file.suffix in (".json", ".safetensors")}
    with pytest.raises(UserError, match=r"holds 3 other run\(s\)"):
        ub.train(ub.methods.VAE(), images, steps=1, out=folder, net="mlp", quiet=True)
    ub.train(ub.methods.VAE(), images, steps=1, out=folder, net="mlp", quiet=True, add=True)
    assert {file: file.read_bytes() for file in before} == before
    for run in find_runs(folder):
        if run.spec.method.code_kinds == ("mean",):
            with pytest.raises(UserError, match="trained outside unbraid"):
                run.spec.method.draw(images, Noise.from_seed(torch.tensor(0), torch.tensor(0)), 1)
    with pytest.raises(UserError, match="distribution of pixels"):
        ub.likelihood_bounds(find(folder, "library VAE beta=4"), images, index=[0], samples=1, quiet=True)


def test_adopting_a_model_again_changes_nothing(folder: Path, images: Any) -> None:
    torch.manual_seed(0)
    run = ub.adopt(plain_pair(), images, "plain", out=folder, seed=0)
    assert run.id == find(folder, "plain seed=0").id
    torch.manual_seed(2)
    assert ub.adopt(plain_pair(), images, "plain", seed=0).id != run.id


FORMS: dict[str, dict[str, Any]] = {
    "logvar": {}, "std": {"second": "std"}, "one": {"latents": LATENTS}, "distribution": {},
}  # fmt: skip


@pytest.mark.parametrize("form", [pytest.param(f, marks=pytest.mark.slow) if f != "std" else f for f in FORMS])
def test_forms_of_posteriors(form: str, images: Any) -> None:
    model = PairVAE(form)
    run = ub.adopt(model, images, "mine", logits=True, **FORMS[form])
    x = images.batch(torch.arange(20))
    q = run.posterior(x)
    with torch.no_grad():
        output = model.encode(x)
        mean, logvar = (
            output.chunk(2, 1) if form == "one" else read_posterior(output, FORMS[form].get("second", "logvar"))
        )
        torch.testing.assert_close(q.mean, mean)
        torch.testing.assert_close(q.logvar, logvar)
        pixels = model.decode(q.mean).sigmoid().reshape(-1, 1, SIDE, SIDE)
    torch.testing.assert_close(run.decode(q.mean), pixels)
    assert run.spec.method.code_kinds == ("mean", "sampled")


def test_spatial_codes_and_the_range_of_pixels(images: Any) -> None:
    model = SpatialVAE()
    run = ub.adopt(model, images, "spatial", pixels=(-1, 1))
    x = images.batch(torch.arange(20))
    with torch.no_grad():
        mean = model.encode(2 * x - 1).latent_dist.mean
        torch.testing.assert_close(run.encode(x), mean.flatten(1))
        torch.testing.assert_close(run.decode(mean.flatten(1)), (model.decode(mean).sample + 1) / 2)
    assert run.spec.latents == 2 * 3 * 3


def test_models_that_are_not_torch(images: Any) -> None:
    """For example the principal components of scikit-learn, which take and return arrays."""
    from sklearn.decomposition import PCA

    rows = images.batch(torch.arange(len(images))).flatten(1)
    pca = PCA(3).fit(rows)
    run = ub.adopt((pca.transform, pca.inverse_transform), rows.numpy(), "PCA")
    np.testing.assert_allclose(run.encode(rows[:5]).numpy(), pca.transform(rows[:5]), atol=1e-5)
    assert run.device == torch.device("cpu")
    assert ub.score(run, ["unsupervised"], quiet=True)[0]["method"] == "PCA"
    with pytest.raises(UserError, match=r"can therefore not be stored in a folder.*file.py:function"):
        ub.adopt((pca.transform, pca.inverse_transform), rows.numpy(), "PCA", out="nowhere")
    assert not Path("nowhere").exists()


class Encoder(nn.Module):
    """An encoder with a mistake."""

    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.mistake, self.layer = mistake, nn.Linear(PIXELS, 2)

    def forward(self, x: Tensor) -> Any:
        z = self.layer(x.flatten(1))
        return {
            "random": lambda: z + torch.rand_like(z),
            "nan": lambda: z / 0 * 0,
            "rows": lambda: z[:3],
            "batch": lambda: z - z.mean(0),
            "integers": lambda: z.long(),
            "wide": lambda: self.layer(x),
            "text": lambda: "codes",
        }[self.mistake]()


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("random", "same values each time"), ("nan", "finite codes"), ("rows", "one row of floating-point numbers"),
        ("batch", r"model.eval\(\)"), ("integers", "floating-point"), ("text", "array of numbers"),
        ("wide", r"must accept a batch of the shape \(8, 1, 12, 12\).*Flatten"),
    ],
)  # fmt: skip
def test_mistakes_of_encoders(mistake: str, message: str, images: Any) -> None:
    with pytest.raises(UserError, match=message):
        ub.adopt(Encoder(mistake), images, "mine")


def test_mistakes_of_decoders_and_arguments(images: Any) -> None:
    encoder, decoder = plain_pair()
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ((encoder, lambda z: z.view(-1)), {}, r"must return examples of the shape \(1, 12, 12\)"),
        ((encoder, lambda z: z / 0), {}, "must return examples"),
        ((encoder, nn.Linear(5, PIXELS)), {}, r"pass the number of latents \(latents=\)"),
        ((encoder, decoder), {"latents": 7}, "must return 7 latents per example"),
        (encoder, {"pixels": (1, 0)}, "low < high"),
        (encoder, {"second": "sigma"}, "must be one of"),
        (encoder, {"seed": -1}, "whole number from 0"),
        (encoder, {"settings": {"data": 1}}, "must have a name"),
        (encoder, {"settings": {"beta": [1]}}, "must be a number or text"),
        (3, {}, "Got int without an encoder"),
        (encoder, {"save_data": True}, "needs a folder"),
    ]
    for model, settings, message in cases:
        with pytest.raises(UserError, match=message):
            ub.adopt(model, images, "mine", **settings)
    for name in ("", "beta_vae", "a:b", " a", "a\nb", "untrained"):
        with pytest.raises(UserError, match="The name of a model"):
            ub.adopt(encoder, images, name)


def test_doubtful_outputs_give_a_warning(images: Any) -> None:
    with pytest.warns(RuntimeWarning, match=r"pass logits=True \(--logits\)"):
        ub.adopt((plain_pair()[0], lambda z: 9 + torch.zeros(len(z), PIXELS)), images, "mine")
    with pytest.warns(RuntimeWarning, match='second="std"'):
        ub.adopt(lambda x: (x.flatten(1)[:, :2], 1 + x.flatten(1)[:, :2]), images, "mine")


def test_damaged_and_exchanged_files_are_refused(folder: Path, tmp_path: Path, images: Any) -> None:
    torch.manual_seed(5)
    run = ub.adopt(plain_pair(), images, "plain", out=tmp_path)
    assert run.path is not None
    file = run.path / "model.json"
    text = file.read_text()
    for damaged, message in (
        (text.replace("aten.relu.default", "aten.neg.default"), "are not those of the run"),
        ("{", "model.json"),
        (text.replace('"format": 1', '"format": 2'), "Update unbraid"),
    ):
        file.write_text(damaged)
        with pytest.raises(UserError, match=message):
            ub.load_run(run.path, images)
    file.write_text(text)
    assert ub.load_run(run.path, images).id == run.id


def test_a_model_that_cannot_be_traced_stays_in_memory(images: Any) -> None:
    model = Branching()
    run = ub.adopt(model, images, "branching")
    x = images.batch(torch.arange(5))
    torch.testing.assert_close(run.encode(x), model.encode(x).detach())
    with pytest.raises(UserError, match="not be stored in a folder"):
        ub.adopt(model, images, "branching", out="nowhere")


@pytest.mark.parametrize("damage", ["operation", "shape", "latents"])
def test_a_stored_network_that_cannot_be_run_is_refused(damage: str) -> None:
    """The digest of a model does not help if whoever changed the model has also changed the digest."""
    node = {"op": "aten.select.int", "args": [{"node": "x"}, 7, 0]}
    nodes = [node] if damage == "operation" else []
    shape = [-3] if damage == "shape" else [3]
    content = ModelFile(shape, encoder={"nodes": nodes, "output": {"node": f"n{len(nodes) - 1}" if nodes else "x"}})
    network = graph_network(content, {}, 2 if damage == "latents" else 3)
    with pytest.raises(UserError, match=r"model\.json must contain"):
        check_network(network, Path("model.json"))


def test_the_meaning_of_the_second_half_of_one_tensor(images: Any) -> None:
    layer = nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 4), nn.Softplus())
    x = images.batch(torch.arange(5))
    with torch.no_grad():
        mean, second = layer(x).chunk(2, 1)
    for name, logvar in {"logvar": second, "variance": second.log(), "std": 2 * second.log()}.items():
        with pytest.warns(RuntimeWarning, match="may be variances") if name == "logvar" else nullcontext():
            q = ub.adopt(layer, images, "halves", latents=2, second=name).posterior(x)
        torch.testing.assert_close((q.mean, q.logvar), (mean, logvar))
    run = ub.adopt(layer, images, "halves", latents=2, second="other")
    torch.testing.assert_close(run.encode(x), mean)
    assert run.spec.method.code_kinds == ("mean",)


@pytest.mark.parametrize(
    ("decoder", "message"),
    [
        (nn.Sequential(nn.Linear(2, PIXELS), nn.Dropout(0.5)), r"decode\(z\) must return the same values each time"),
        (nn.Sequential(nn.Linear(2, PIXELS), nn.BatchNorm1d(PIXELS)), r"decode\(z\) of the model .*model.eval\(\)"),
        (lambda z: (z - z.mean(0)) @ torch.ones(2, PIXELS), r"decode\(z\) must compute each example independently"),
    ],
)
def test_decoders_that_are_random_or_depend_on_the_batch_are_refused(images: Any, decoder: Any, message: str) -> None:
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, 2))
    with pytest.raises(UserError, match=message):
        ub.adopt((encoder, lambda z: decoder(z).sigmoid()), images, "mistake")


def test_an_encoder_without_the_axis_of_the_batch_for_one_example(images: Any) -> None:
    layer = nn.Conv2d(1, 3, SIDE)
    with pytest.raises(UserError, match=r"batch of the shape \(1, 1, 12, 12\).*squeeze\(\)"):
        ub.adopt(lambda x: layer(x).squeeze(), images, "squeezed")


CODE_WITHOUT_MODULES = """
import json
from pathlib import Path
import numpy as np

class Model:
    def __init__(self):
        self.matrix = np.array(json.loads(Path({file!r}).read_text()), dtype=np.float32)
    def encode(self, x):
        return np.asarray(x).reshape(len(x), -1)[:, :3] @ self.matrix

def load():
    return Model()
"""


def test_changed_code_without_modules_is_another_run(images: Any, tmp_path: Path) -> None:
    file, code = tmp_path / "matrix.json", tmp_path / "arrays_only.py"
    code.write_text(CODE_WITHOUT_MODULES.format(file=str(file)))
    runs = []
    for value in (1.0, 2.0):
        file.write_text(json.dumps([[value, 0.0], [0.0, value], [1.0, 1.0]]))
        with pytest.warns(RuntimeWarning, match="stores the name of the function"):
            runs.append(ub.adopt(f"{code}:load", images, "arrays", out=tmp_path / "runs", trust=True))
    assert runs[0].id != runs[1].id
    x = images.batch(torch.arange(3))
    assert ub.load_run(runs[1].path, images, trust=True).encode(x).shape == (3, 2)
    with pytest.raises(UserError, match="must return the model that was adopted"):
        ub.load_run(runs[0].path, images, trust=True)
