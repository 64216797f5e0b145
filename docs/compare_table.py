"""What unbraid and its peers have, with a test behind every cell of ours: the facts of docs/compare.md.

Peers as surveyed in November 2026 from their own sources: Y has it, P partly or through another package, a dot not.
Their order in a row is that of the table's `peers`.
"""

from __future__ import annotations

from dataclasses import dataclass

PEERS = {
    "DL": ("google-research/disentanglement_lib 1.5", "Apache-2.0", "2020, TensorFlow 1.14"),
    "ER": ("erow/disentanglement_lib", "Apache-2.0", "2023, PyTorch"),
    "DIS": ("nmichlo/disent", "MIT", "2026, PyTorch"),
    "YD": ("YannDubs/disentangling-vae", "MIT", "2023, PyTorch"),
    "PY": ("pythae 0.1.2", "Apache-2.0", "2024, PyTorch"),
    "AA": ("amir-abdi/disentanglement-pytorch", "GPL", "2021, PyTorch 1.1"),
    "DCF": ("facebookresearch/disentangling-correlated-factors", "MIT", "2023, PyTorch 1.12"),
    "LQ": ("kylehkhsu/latent_quantization", "MIT", "2024, JAX"),
    "FV": ("1Konny/FactorVAE", "MIT", "2018, PyTorch"),
    "PV": ("AntixK/PyTorch-VAE", "Apache-2.0", "2021, PyTorch"),
    "UB": ("Ubisoft DisentanglementMetrics", "Apache-2.0", "NumPy 1.19"),
    "SM": ("SA-Mousavichashmi/Disentanglement-Project-V2", "none", "2025, PyTorch"),
    "LI": ("lightly 1.6", "MIT", "2026, PyTorch"),
    "SL": ("solo-learn", "MIT", "2026, PyTorch"),
    "MV": ("MultiVae 1.0", "Apache-2.0", "2026, PyTorch"),
}
LAWS, PAIRS, VITAE = "tests/test_methods.py", "tests/test_ada_and_slow.py", "tests/test_vitae.py"
GOLDEN, LINEAR, INFORMATION = (
    "tests/test_metrics_golden.py",
    "tests/test_linear_metrics.py",
    "tests/test_information.py",
)


@dataclass(frozen=True)
class Row:
    """A feature: who has it, what of our registries it is, and the tests that show ours; none where we have it not."""

    what: str
    peers: str
    tests: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    partly: str = ""
    elsewhere: str = ""

    @property
    def ours(self) -> str:
        """Y, P or a dot."""
        return "P" if self.partly else "Y" if self.tests else "."


@dataclass(frozen=True)
class Table:
    """Features of one kind, the peers they were looked for in, and the registry that names belong to."""

    title: str
    peers: tuple[str, ...]
    registry: str
    rows: list[Row]


METHODS = Table("Methods", ("DL", "ER", "DIS", "YD", "PY", "AA", "DCF", "LQ", "FV", "PV", "SM"), "methods", [
    Row("plain autoencoder", ". . Y . Y Y . Y . . .", ("tests/test_ae.py::test_loss_by_hand",), ("ae",)),
    Row("VAE, beta-VAE", "Y Y Y Y Y Y Y Y . Y Y", (f"{LAWS}::test_limit",), ("vae", "beta_vae")),
    Row("AnnealedVAE (capacity)", "Y Y . Y Y Y Y . . Y Y", (f"{LAWS}::test_capacity_schedule",), ("annealed_vae",)),
    Row("FactorVAE", "Y Y . Y Y Y Y . Y P Y", (f"{LAWS}::test_factor_vae_terms_by_hand",), ("factor_vae",)),
    Row("beta-TCVAE", "Y Y Y Y Y Y Y Y . Y Y", (f"{LAWS}::test_total_correlation_equals_its_loops",), ("beta_tcvae",)),
    Row("DIP-VAE I, II", "Y Y Y . . Y . . . P Y", (f"{LAWS}::test_dip_covariances_equal_their_loops",),
        ("dip_vae_i", "dip_vae_ii")),
    Row("InfoVAE, MMD", ". . Y . Y Y . . . Y ."),
    Row("ControlVAE, DynamicVAE, CascadeVAE-C, DEFT, DeVAE", ". Y . . . . . . . . ."),
    Row("DFC, perceptual losses", ". . Y . P . . . . Y ."),
    Row("Group-VAE, ML-VAE (known number of changes)", "Y . . . . . . . . . .", (f"{PAIRS}::test_count_by_hand",),
        ("ada_gvae", "ada_mlvae")),
    Row("Ada-GVAE, Ada-ML-VAE", "Y . Y . . . Y . . . .", (f"{PAIRS}::test_ada_objective_from_its_parts",),
        ("ada_gvae", "ada_mlvae"), elsewhere="JacopoDapueto/transfer_disentanglement"),
    Row("semi-supervised methods", "Y . . . . P . . . . ."),
    Row("triplet methods", ". . Y . . . . . . . ."),
    Row("HFS (factorised support)", ". . . . . . Y . . . ."),
    Row("QLAE, Tripod (quantised codes)", ". . . . . . . Y . . .", elsewhere="lucidrains/vector-quantize-pytorch"),
    Row("S-VAE (von Mises-Fisher), Poincare VAE", ". . . . Y . . . . . .", elsewhere="nicola-decao/s-vae-pytorch"),
    Row("Diffusion VAE (sphere, torus, projective space)", ". . . . . . . . . . .",
        ("tests/test_diffusion_vae.py::test_terms_by_hand",), ("diffusion_vae",),
        elsewhere="LuisArmandoPerez/DiffusionVAE (Keras)"),
    Row("SlowVAE", ". . . . . . . . . . .", (f"{PAIRS}::test_slow_objective_from_its_parts",), ("slow_vae",),
        elsewhere="bethgelab/slow_disentanglement"),
    Row("PCL", ". . . . . . . . . . .", ("tests/test_pcl.py::test_loss_equals_its_loops",), ("pcl",)),
    Row("iVAE, ICE-BeeM", ". . . . . . . . . . .", elsewhere="ilkhem/icebeem"),
    Row("PMP", ". . . . . . . . . . .", ("tests/test_pmp.py::test_losses_equal_their_loops",), ("pmp",),
        elsewhere="marc0git/PMPdisentanglement (a notebook)"),
    Row("VITAE", ". . . . . . . . . . .", (f"{VITAE}::test_without_perspective_it_is_a_vae_of_the_appearance",),
        ("u_vitae", "c_vitae"), elsewhere="SkafteNicki/unsuper"),
    Row("group-theory and commutative VAEs", ". . . . . . . . . . Y"),
    Row("sequential methods with several factors", ". . . . . . . . . . .", elsewhere="azencot-group/MSD-Benchmark"),
    Row("disentangled diffusion models", ". . . . . . . . . . .", elsewhere="ThomasMrY/DisDiff"),
])  # fmt: skip
METRICS = Table("Metrics", ("DL", "ER", "DIS", "YD", "PY", "AA", "DCF", "LQ", "UB", "SM"), "metrics", [
    Row("BetaVAE score (Z-diff)", "Y Y . . . P . . Y .", (f"{LINEAR}::test_golden_beta_vae",), ("beta_vae",)),
    Row("FactorVAE score (Z-min-var)", "Y Y Y . . P . . Y .", (f"{GOLDEN}::test_golden_factor_vae",), ("factor_vae",)),
    Row("MIG", "Y Y Y Y . P Y . Y Y", (f"{GOLDEN}::test_golden_information",), ("mig",), elsewhere="latte-metrics"),
    Row("DCI", "Y Y Y . . P Y Y Y Y", ("tests/test_dci.py::test_golden_dci",), ("dci",)),
    Row("SAP", "Y Y Y . . P Y . Y Y", (f"{GOLDEN}::test_golden_sap",), ("sap",), elsewhere="latte-metrics"),
    Row("modularity", "Y Y . . . . Y . Y Y", (f"{GOLDEN}::test_golden_information",), ("modularity",),
        elsewhere="latte-metrics"),
    Row("explicitness", "Y Y . . . . . . Y .", (f"{LINEAR}::test_golden_explicitness",), ("explicitness",)),
    Row("IRS", "Y Y . . . P . . Y .", (f"{INFORMATION}::test_golden_irs",), ("irs",)),
    Row("UDR (selection without labels)", "Y Y . . . . . . . .", ("tests/test_udr.py::test_golden_udr",)),
    Row("Gaussian total correlation, Wasserstein, information", "Y Y Y . . . . . . .",
        (f"{GOLDEN}::test_golden_unsupervised",), ("unsupervised",)),
    Row("downstream accuracy and efficiency", "Y Y . . . . . . . .",
        (f"{LINEAR}::test_golden_downstream_lr", f"{LINEAR}::test_golden_downstream_gbt"),
        ("downstream_lr", "downstream_gbt")),
    Row("fairness", "Y Y . . . . . . . .", ("tests/test_fairness.py::test_golden_aggregates",), ("fairness",)),
    Row("strong and reduced downstream, unified scores", "Y Y . . . . . . . ."),
    Row("abstract reasoning", "Y . . . . . . . . ."),
    Row("DCIMIG, JEMMIG, MIG-sup", ". P . . . . . . Y .",
        ("tests/test_metrics.py::test_equals_its_oracle", f"{INFORMATION}::test_jemmig_equals_its_oracle_in_nats",
         f"{INFORMATION}::test_mig_sup_is_mig_with_codes_and_factors_exchanged"), ("dcimig", "jemmig", "mig_sup")),
    Row("Z-max-var", ". . . . . . . . Y ."),
    Row("InfoMEC", ". . . . . . . Y . .", (f"{INFORMATION}::test_infomec_equals_its_oracle_in_all_three",),
        ("infomec",)),
    Row("MCC", ". . . . . . . . . .", (f"{INFORMATION}::test_mcc_by_ranks_equals_its_oracle",), ("mcc",),
        elsewhere="slow_disentanglement, cl-ica"),
    Row("OMES", ". . . . . . . . . .", elsewhere="transfer_disentanglement"),
    Row("AAM, flatness, factorised-support score", ". . P P . . P . . ."),
    Row("judged by vision-language models", ". . . . . . . . . .", elsewhere="MSD-Benchmark"),
])  # fmt: skip
DATA = Table("Data", ("DL", "ER", "DIS", "YD", "AA", "DCF", "LQ", "FV", "SM"), "data", [
    Row("dSprites", "Y Y Y Y Y Y Y Y Y", ("tests/test_data.py::test_dsprites_is_the_known_set",
        "tests/test_readers.py::test_dsprites_is_read_from_either_form"), ("dsprites", "dsprites_file")),
    Row("coloured, noisy and painted dSprites", "Y Y . . Y . . . .",
        ("tests/test_painted.py::test_painted_images_follow_their_recipes",),
        ("color_dsprites", "noisy_dsprites", "scream_dsprites")),
    Row("SmallNORB", "Y Y Y . Y Y . . .",
        ("tests/test_readers_labelled.py::test_smallnorb_is_read_with_instance_aside",),
        ("smallnorb",)),
    Row("Cars3D", "Y Y Y . Y Y . . Y",
        ("tests/test_readers_cars.py::test_cars3d_is_read_from_the_archive_sorted_by_name",), ("cars3d",)),
    Row("Shapes3D", "P Y Y . . Y Y . Y", ("tests/test_readers.py::test_shapes3d_is_read_and_its_labels_compared",),
        ("shapes3d",)),
    Row("MPI3D", "P Y Y . P Y Y . .",
        ("tests/test_readers.py::test_mpi3d_takes_its_grid_from_the_number_of_images",),
        ("mpi3d_toy", "mpi3d_realistic", "mpi3d_real", "mpi3d_complex")),
    Row("Isaac3D, Falcor3D", ". . . . . . Y . ."),
    Row("CelebA, MNIST, Fashion-MNIST, 3D chairs", ". P . Y P Y P Y P",
        ("tests/test_readers_labelled.py::test_celeba_is_read_in_the_order_of_its_list",
         "tests/test_readers_labelled.py::test_mnist_is_read_and_framed"), ("celeba", "mnist", "fashion_mnist"),
        partly="all but 3D chairs"),
    Row("body meshes (FAUST) and bodies made on the spot", ". . . . . . . . .",
        ("tests/test_readers_meshes.py::test_faust_is_read_by_subject_and_pose",
         "tests/test_bodies.py::test_bodies_are_the_known_ones"), ("faust", "bodies", "body_images")),
    Row("correlated factors", ". P . . . Y . . .",
        ("tests/test_sampling.py::test_joint_distribution_of_correlated_factors",)),
    Row("pairs, triplets and walks of examples", "P . Y . . P . . .",
        ("tests/test_sampling.py::test_k_changed_factors", "tests/test_sampling.py::test_walks_move_one_factor_by_one"),
        partly="pairs and walks, no triplets"),
    Row("synthetic data that needs no download", "P P Y . . . . . .",
        ("tests/test_data_command.py::test_built_in_needs_no_files",), ("sprites", "toy", "shapes3d_rendered")),
    Row("KITTI masks, Natural Sprites", ". . . . . . . . .", elsewhere="slow_disentanglement"),
])  # fmt: skip
PIPELINE = Table("Pipeline", ("DL", "DIS", "YD", "PY", "AA", "DCF", "LQ", "PV", "LI", "SL", "MV"), "", [
    Row("installs with pip on Python 3.11", ". P . Y . . P . Y P Y", ("tests/test_cli.py::test_help_helps",),
        partly="from a checkout"),
    Row("command line", "Y . Y . Y Y P P Y P .", ("tests/test_cli.py::test_every_field_is_a_flag_with_help",)),
    Row("an interrupted run goes on", "Y . . P Y Y P . Y Y Y",
        ("tests/test_training.py::test_kill_9_then_the_same_command",)),
    Row("sweeps and studies", "Y Y P . P Y Y . . . .",
        ("tests/test_study.py::test_a_study_runs_and_its_table_is_complete",
         "tests/test_cli.py::test_train_sweeps_score_and_reload")),
    Row("many models at once on one GPU", ". . . . . . . . . . .",
        ("tests/test_gpu.py::test_a_run_alone_and_in_company", f"{LAWS}::test_stack_equals_solo")),
    Row("one model on several GPUs", ". Y . Y . . . Y Y Y ."),
    Row("a table of all results, without a service", "Y . P . . . . P P . .",
        ("tests/test_study.py::test_the_table_is_rebuilt_from_folders_and_merged_copies",)),
    Row("figures of a study, traversals", "P P Y . P P P P . P P",
        ("tests/test_study_commands.py::test_analyse_writes_what_can_be_answered",
         "tests/test_cli.py::test_traverse_writes_pictures")),
    Row("HTML report", ". . . . . . . . . . .",
        ("tests/test_report.py::test_the_command_writes_beside_the_runs_and_says_where",)),
    Row("latents moved by hand in a browser", ". . . . . . . . . . .",
        ("tests/browser/test_report_browser.py::test_a_slider_moves_the_decoders_own_image",)),
    Row("pretrained models to download", ". . Y Y . . P . . . Y"),
    Row("documentation site", ". Y . Y . . . . Y Y Y", ("tests/test_site.py::test_every_page_is_reachable",)),
    Row("tests in continuous integration", "P Y . Y P . . P Y Y Y",
        (f"{LAWS}::test_families_cover_the_registry", "tests/test_metrics.py::test_tables_cover_the_registry")),
])  # fmt: skip
TABLES = (METHODS, METRICS, DATA, PIPELINE)
