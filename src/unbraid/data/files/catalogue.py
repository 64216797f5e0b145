"""The catalogue of datasets, with their files, download addresses, licences and citations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

DSPRITES = "Matthey, Higgins, Hassabis, Lerchner (2017). dSprites: Disentanglement testing Sprites dataset."
SHAPES3D = "Burgess, Kim (2018). 3D Shapes Dataset."
STUDY = (
    f"{DSPRITES} Locatello et al. (2019). Challenging Common Assumptions in the Unsupervised Learning of Disentangled "
    "Representations. arXiv:1811.12359"
)
MPI3D = (
    "Gondal et al. (2019). On the Transfer of Inductive Bias from Simulation to the Real World: a New Disentanglement "
    "Dataset. arXiv:1906.03292"
)
NIE = "Nie et al. (2020). Semi-Supervised StyleGAN for Disentanglement Learning. ICML 2020. arXiv:2003.03461"
TONNAER = (
    "Tonnaer, Perez Rey, Menkovski, Holenderski, Portegies (2022). Quantifying and Learning Linear Symmetry-Based "
    "Disentanglement. ICML 2022. arXiv:2011.06070"
)
KLINDT = (
    "Klindt, Schott, Sharma, Ustyuzhaninov, Brendel, Bethge, Paiton (2021). Towards Nonlinear Disentanglement in "
    "Natural Data with Temporal Sparse Coding. ICLR 2021. arXiv:2007.10930"
)
OURS = "Apache-2.0 (part of unbraid)"


@dataclass(frozen=True)
class File:
    """A file of a dataset, or a folder of files.

    Attributes:
        name: Path inside the dataset's folder.
        urls: Addresses to download the file from, in the order in which they are tried.
        sha256: The published SHA-256, or None. It always comes from a public source, never from our own copy.
        size: The published size in bytes, or None.
        other_names: Other common paths of the same file.
        entries: For a folder, the number of files in it. None for a file.
    """

    name: str
    urls: tuple[str, ...] = ()
    sha256: str | None = None
    size: int | None = None
    other_names: tuple[str, ...] = ()
    entries: int | None = None


@dataclass(frozen=True)
class Source:
    """A dataset and where its files come from.

    Attributes:
        name: Name in the registry of datasets.
        description: One line about the dataset.
        licence: Licence of the dataset.
        citation: Publication to cite.
        homepage: Address of the authors' page.
        alternatives: Sets of files. One complete set is sufficient. The first complete set is used.
        manual_steps: How to download files that a program cannot download.
        built_in: Whether the dataset is generated and has no files.
        made_from: What a built-in dataset is generated from.
        extra: For a built-in dataset, the optional dependency group of unbraid that it needs, and the name of the
            package in that group.
    """

    name: str
    description: str
    licence: str
    citation: str
    homepage: str = ""
    alternatives: tuple[tuple[File, ...], ...] = ()
    manual_steps: str = ""
    built_in: bool = False
    made_from: str = ""
    extra: tuple[str, str] | None = None


def _mirrored_files(published: Iterable[tuple[str, int, str]], folders: tuple[str, ...]) -> tuple[File, ...]:
    """Return catalogue entries for files (name, size, SHA-256) that can be downloaded from several base addresses."""
    return tuple(File(name, tuple(f + name for f in folders), sha256, size) for name, size, sha256 in published)


def _unpacked_files(files: tuple[File, ...], below: str) -> tuple[File, ...]:
    """Return catalogue entries for the decompressed forms of .gz files.

    The decompressed files may also be in the subfolder `below`, where other programs store them.
    """
    names = (file.name.removesuffix(".gz") for file in files)
    return tuple(File(name, other_names=(f"{below}/{name}",)) for name in names)


# The sizes and SHA-256 below come from the repository tensorflow/datasets, tensorflow_datasets/url_checksums/{dsprites,
# shapes3d,smallnorb,mnist,fashion_mnist,celeb_a}.txt. The SHA-256 of img_align_celeba.zip is also in the repository
# pytorch/tutorials, .jenkins/download_data.py, together with the mirror that is used here.
_TRAINING = "smallnorb-5x46789x9x18x6x2x96x96-training"
_TESTING = "smallnorb-5x01235x9x18x6x2x96x96-testing"
SMALLNORB = _mirrored_files(
    (
        (f"{_TRAINING}-dat.mat.gz", 131896188, "5ffd6272a07d32695ee1082a26a41a93a37aab8c28da047f8c34ed348d214873"),
        (f"{_TRAINING}-cat.mat.gz", 348, "2784e542c1922060691090952b6cd6278879a216c90f81476f0f00256d42cdaa"),
        (f"{_TRAINING}-info.mat.gz", 71052, "de7eb932ebe7a4ee16217fead60660d0eb3d23632c2f4d1c51f88c501c17bf32"),
        (f"{_TESTING}-dat.mat.gz", 130799817, "cf7104eed3e51174d2f65b66d1e5878b9da233b886f161b0d88f4510ba2c7474"),
        (f"{_TESTING}-cat.mat.gz", 347, "ecaf6d5bb8c3bc5eab9cf0258f6d2198dd474e016e374836fc097f2e5ff509ff"),
        (f"{_TESTING}-info.mat.gz", 10428, "16adf314226327ee006d1a44db8cfef52773c06c829951d5653a9f6f310248a2"),
    ),
    ("https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/", "https://cs.nyu.edu/~yann/data/norb-v1.0-small/"),
)  # fmt: skip
MNIST = _mirrored_files(
    (
        ("train-images-idx3-ubyte.gz", 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1-ubyte.gz", 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ("t10k-images-idx3-ubyte.gz", 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1-ubyte.gz", 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
    ("https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/"),
)
FASHION_MNIST = _mirrored_files(
    (
        ("train-images-idx3-ubyte.gz", 26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        ("train-labels-idx1-ubyte.gz", 29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        ("t10k-images-idx3-ubyte.gz", 4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        ("t10k-labels-idx1-ubyte.gz", 5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ),
    (
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
)
_ATTRIBUTES = File(
    "list_attr_celeba.txt",
    sha256="f0e5da289d5ccf75ffe8811132694922b60f2af59256ed362afa03fefba324d0",
    size=26721026,
    other_names=("Anno/list_attr_celeba.txt",),
)
_FACES = File(
    "img_align_celeba.zip",
    ("https://s3.amazonaws.com/pytorch-tutorial-assets/img_align_celeba.zip",),
    "46fb89443c578308acf364d7d379fe1b9efb793042c0af734b6112e4fd3a8c74",
    1443490838,
    other_names=("Img/img_align_celeba.zip",),
)
_FACE_FOLDER = File(
    "img_align_celeba", other_names=("Img/img_align_celeba", "img_align_celeba/img_align_celeba"), entries=202_599
)
_REGISTRATIONS = tuple(
    File(name, other_names=(f"training/registrations/{name}", f"MPI-FAUST/training/registrations/{name}"))
    for name in (f"tr_reg_{i:03d}.ply" for i in range(100))
)
_DSPRITES_STEM = "dsprites_ndarray_co1sh3sc6or40x32y32_64x64"
_DSPRITES_HOME = "https://github.com/google-deepmind/dsprites-dataset/raw/master/"


def _built_in_source(
    name: str, description: str, made_from: str = "", citation: str = "", extra: tuple[str, str] | None = None
) -> Source:
    return Source(name, description, OURS, citation, built_in=True, made_from=made_from, extra=extra)


def _mpi3d_source(name: str, description: str, file: File, note: str) -> Source:
    home = "https://github.com/rr-learning/disentanglement_dataset"
    return Source(name, description, "CC BY 4.0", MPI3D, home, ((file,),), note)


def _nvidia_source(name: str, description: str, stem: str, labels: str, images: int, drive: str, size: str) -> Source:
    folder = f"{stem}_down128"
    parts = (
        File(f"{folder}/images", other_names=("images",), entries=images),
        File(f"{folder}/{labels}", other_names=(labels,)),
    )
    note = (
        "The authors offer only a Google Drive page, from which programs cannot download reliably. Download the "
        f"version with 128x128 pixels ({size}) from https://drive.google.com/uc?export=download&id={drive} and save it "
        f"as {folder}.zip. It may also be unpacked. No size in bytes and no sha256 are published."
    )
    home = "https://github.com/NVlabs/High-res-disentanglement-datasets"
    return Source(name, description, "CC BY 4.0", NIE, home, (parts, (File(f"{folder}.zip"),)), note)


def _zenodo_source(name: str, description: str, licence: str, file: str, record: int, note: str) -> Source:
    """Return the catalogue entry of a dataset of Klindt et al. (2021). The addresses are those in the authors' code."""
    home = f"https://zenodo.org/record/{record}"
    files = (File(file, (f"{home}/files/{file}?download=1",)),)
    return Source(name, description, licence, KLINDT, home, (files,), note)


_MPI3D_AUTHORS = "https://huggingface.co/datasets/waleedgondal/mpi3d/resolve/main/"
_MPI3D_BUCKET = "https://storage.googleapis.com/mpi3d_disentanglement_dataset/data/"
_MPI3D_NOTE = (
    "The links in older papers (storage.googleapis.com/disentanglement_dataset) no longer work, and no size or "
    "sha256 is published. The authors now use huggingface.co/datasets/waleedgondal/mpi3d. Download {} from there."
)
_UNPACKED = "The files may also be decompressed, without the .gz."
_SPRITES = "regenerated dSprites"
_BODIES = ("bodies", "anny")
_ANNY = "the body model of the package anny: Apache-2.0 code, CC0 assets"

_ALL = (
    _built_in_source("dsprites", "dSprites, regenerated: 737,280 images 64x64x1", "the geometry of dSprites", DSPRITES),
    _built_in_source("sprites", "small sprites: 9,216 images 32x32x1", "the shapes of dSprites"),
    _built_in_source("square_torus", "a square on a torus: 4,096 images 64x64x1", "two translations", TONNAER),
    _built_in_source("toy", "nonlinear mixtures of four factors: 960 vectors"),
    _built_in_source("color_dsprites", "dSprites in random colours, 64x64x3", _SPRITES, STUDY),
    _built_in_source("noisy_dsprites", "dSprites, white on a noise background, 64x64x3", _SPRITES, STUDY),
    _built_in_source("scream_dsprites", "dSprites on crops of a picture, 64x64x3", f"{_SPRITES} and a picture", STUDY),
    _built_in_source("shapes3d_rendered", "Shapes3D, re-rendered: 480,000 images 64x64x3", "a similar scene", SHAPES3D),
    _built_in_source("bodies", "meshes of human bodies that vary in shape and pose", _ANNY, extra=_BODIES),
    _built_in_source("body_images", "images of human bodies that vary in shape and pose", _ANNY, extra=_BODIES),
    Source(
        "dsprites_file", "dSprites, the published file: 737,280 images 64x64x1", "Apache-2.0", DSPRITES,
        "https://github.com/google-deepmind/dsprites-dataset",
        (
            (File(f"{_DSPRITES_STEM}.npz", (f"{_DSPRITES_HOME}{_DSPRITES_STEM}.npz",), other_names=("dsprites.npz",)),),
            (File(
                f"{_DSPRITES_STEM}.hdf5", (f"{_DSPRITES_HOME}{_DSPRITES_STEM}.hdf5",),
                "729fa22e884c9c500e1f17415d580746b4c5894fbbb780a1319bbcfa39a745bb", 28024106, ("dsprites.hdf5",),
            ),),
        ),
        "The .hdf5 file of the same name works as well, and has a published sha256.",
    ),
    Source(
        "shapes3d", "Shapes3D: 480,000 images 64x64x3", "Apache-2.0", SHAPES3D, "https://github.com/google-deepmind/3d-shapes",
        ((File(
            "3dshapes.h5", ("https://storage.googleapis.com/3d-shapes/3dshapes.h5",),
            "0a0f6ed98baff276a50f3a081a7434d788da63cb135a98189b2a5b5769be1785", 267573662, ("shapes3d.h5",),
        ),),),
    ),
    Source(
        "cars3d", "Cars3D: 17,568 renderings of 183 cars, 64x64x3", "none stated; use for research only",
        "Reed, Zhang, Zhang, Lee (2015). Deep Visual Analogy-Making. NIPS 2015.", "http://www.scottreed.info",
        (
            (File("cars3d_64x64.npz", other_names=("cars3d_x64.npz", "cars3d.npz")),),
            (File("nips2015-analogy-data.tar.gz", ("http://www.scottreed.info/files/nips2015-analogy-data.tar.gz",)),),
        ),
        "A .npz file with the array 'images', called cars3d_64x64.npz, works as well.",
    ),
    Source(
        "smallnorb", "SmallNORB: 48,600 photographs of 50 toys, 64x64x1", "research use, not to be sold",
        "LeCun, Huang, Bottou (2004). Learning Methods for Generic Object Recognition with Invariance to Pose and "
        "Lighting. CVPR 2004.",
        "https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/", (SMALLNORB, _unpacked_files(SMALLNORB, "raw")),
        _UNPACKED,
    ),
    _mpi3d_source(
        "mpi3d_toy", "MPI3D, simple renderings: 1,036,800 images 64x64x3",
        File("mpi3d_toy.npz", (f"{_MPI3D_AUTHORS}mpi3d_toy.npz", f"{_MPI3D_BUCKET}mpi3d_toy.npz")),
        _MPI3D_NOTE.format("mpi3d_toy.npz"),
    ),
    _mpi3d_source(
        "mpi3d_realistic", "MPI3D, realistic renderings: 1,036,800 images 64x64x3",
        File("mpi3d_realistic.npz", (f"{_MPI3D_AUTHORS}mpi3d_realistic.npz", f"{_MPI3D_BUCKET}mpi3d_realistic.npz")),
        _MPI3D_NOTE.format("mpi3d_realistic.npz"),
    ),
    # The authors' bucket once contained a corrupt real.npz (rr-learning/disentanglement_dataset, issue 5), so it is not
    # used as a mirror.
    _mpi3d_source(
        "mpi3d_real", "MPI3D, photographs: 1,036,800 images 64x64x3",
        File("mpi3d_real.npz", (f"{_MPI3D_AUTHORS}mpi3d_real.npz",)), _MPI3D_NOTE.format("mpi3d_real.npz"),
    ),
    _mpi3d_source(
        "mpi3d_complex", "MPI3D, photographs of everyday objects: 460,800 images 64x64x3",
        File(
            "real3d_complicated_shapes_ordered.npz",
            ("https://huggingface.co/datasets/randall-lab/mpi3d-complex/resolve/main/real3d_complicated_shapes_ordered.npz",),
            other_names=("mpi3d_complex.npz", "mpi3d_real_complex.npz"),
        ),
        "The authors offer only a Google Drive page, from which programs cannot download reliably. The address here "
        "is a copy made by others, and no size or sha256 is published.",
    ),
    _nvidia_source("isaac3d", "Isaac3D: 737,280 renderings of a robot in a kitchen, 64x64x3", "Isaac3D", "labels.npy",
                   737_280, "1OmQ1G2wnm6eTsSFGTKFZZAh5D3nQTW1B", "13 GB"),
    _nvidia_source("falcor3d", "Falcor3D: 233,280 renderings of a living room, 64x64x3", "Falcor3D", "train-rec.labels",
                   233_280, "1XAQfFK1x6cpN1eiovbP0hVfLTm5SsSoJ", "3.7 GB"),
    Source(
        "chairs3d", "3D chairs: 86,366 renderings of 1,393 chairs, 64x64x3", "none stated; use for research only",
        "Aubry, Maturana, Efros, Russell, Sivic (2014). Seeing 3D chairs: exemplar part-based 2D-3D alignment using a "
        "large dataset of CAD models. CVPR 2014.",
        "https://www.di.ens.fr/willow/research/seeing3Dchairs/",
        (
            (File("rendered_chairs/all_chair_names.mat"),),
            (File(
                "rendered_chairs.tar",
                ("https://www.di.ens.fr/willow/research/seeing3Dchairs/data/rendered_chairs.tar",),
            ),),
        ),
        "The archive may also be unpacked. Its folder is recognised by the file all_chair_names.mat.",
    ),
    Source(
        "mnist", "MNIST: 70,000 digits 28x28x1", "CC BY-SA 3.0",
        "LeCun, Bottou, Bengio, Haffner (1998). Gradient-based learning applied to document recognition.",
        "http://yann.lecun.com/exdb/mnist/", (MNIST, _unpacked_files(MNIST, "MNIST/raw")),
        _UNPACKED,
    ),
    Source(
        "fashion_mnist", "Fashion-MNIST: 70,000 garments 28x28x1", "MIT",
        "Xiao, Rasul, Vollgraf (2017). Fashion-MNIST. arXiv:1708.07747",
        "https://github.com/zalandoresearch/fashion-mnist",
        (FASHION_MNIST, _unpacked_files(FASHION_MNIST, "FashionMNIST/raw")), _UNPACKED,
    ),
    Source(
        "celeba", "CelebA: 202,599 faces with 40 attributes", "non-commercial research only",
        "Liu, Luo, Wang, Tang (2015). Deep Learning Face Attributes in the Wild. ICCV 2015. arXiv:1411.7766",
        "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
        ((_FACE_FOLDER, _ATTRIBUTES), (_FACES, _ATTRIBUTES)),
        "Follow the links on the homepage of CelebA and download img_align_celeba.zip ('Align&Cropped Images') and "
        "list_attr_celeba.txt (in the folder Anno). The zip file may be unpacked. No address is known from which a "
        "program can download the attributes reliably.",
    ),
    Source(
        "faust", "FAUST: 10 people in 10 poses, meshes of 6,890 points", "research use only, after registration",
        "Bogo, Romero, Loper, Black (2014). FAUST: Dataset and evaluation for 3D mesh registration. CVPR 2014.",
        "http://faust.is.tue.mpg.de", (_REGISTRATIONS, (File("MPI-FAUST.zip"),)),
        "Register at the homepage and download MPI-FAUST.zip. Put it into the folder as it is, or unpack it there.",
    ),
    _zenodo_source(
        "kitti_masks", "KITTI Masks: 84,626 masks of pedestrians in 2,120 video sequences, 64x64x1",
        "see the homepage (the masks of KITTI MOTS are CC BY-NC-SA 3.0)", "kitti_peds_v2.pickle", 3931823,
        "The file is a pickle. Only arrays, lists and dictionaries are read from it, and nothing in it is executed.",
    ),
    _zenodo_source(
        "natural_sprites", "Natural Sprites: sprites that move as objects in videos do, 64x64x1",
        "see the homepage", "downscale_keepaspect.csv", 3948069,
        "The file has the measured positions and areas. The images are drawn when they are first loaded. They need "
        "about 2 GB in the cache folder, or 4 GB with variant=discrete.",
    ),
)  # fmt: skip

SOURCES: dict[str, Source] = {source.name: source for source in _ALL}
