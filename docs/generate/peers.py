"""What unbraid and other libraries have: the facts of docs/design/compare.md, with tests for each cell of ours.

The other libraries were surveyed in November 2026 from their own sources. Y: has it. P: partly, or through another
package. A dot: does not have it. The marks of a feature are in the order of the table's `peers`. Tests are named by the
name of their file and their function.
"""

from __future__ import annotations

from dataclasses import dataclass

from unbraid import zoo

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
LAWS, PAIRS, VITAE, QUANTISED = "test_methods.py", "test_ada_and_slow.py", "test_vitae.py", "test_quantised.py"
GOLDEN, LINEAR, INFORMATION = "test_metrics_golden.py", "test_linear_metrics.py", "test_information.py"
INTERVENTIONS, PEER_METRICS = "test_interventions.py", "test_peers.py"
READERS, LABELLED, SAMPLING = "test_readers.py", "test_labelled_readers.py", "test_sampling.py"


def zoo_contents() -> str:
    """Return how many models, methods and datasets the zoo has."""
    names = [model.name.split("/") for model in zoo.list()]
    methods, data = (sorted({part[i] for part in names}) for i in (1, 0))
    return f"{len(names)} models of {len(methods)} methods, trained on {', '.join(data[:-1])} and {data[-1]}"


@dataclass(frozen=True)
class Feature:
    """A feature: who has it, its names in our registries, and the tests that show it; no tests if we do not have it."""

    what: str
    peers: str
    tests: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    partly: str = ""
    elsewhere: str = ""

    @property
    def ours(self) -> str:
        """Our mark: Y, P or a dot."""
        return "P" if self.partly else "Y" if self.tests else "."


@dataclass(frozen=True)
class FeatureTable:
    """Features of one kind, the libraries that were surveyed, and the registry to which the names belong."""

    title: str
    peers: tuple[str, ...]
    registry: str
    features: list[Feature]


METHODS = FeatureTable("Methods", ("DL", "ER", "DIS", "YD", "PY", "AA", "DCF", "LQ", "FV", "PV", "SM"), "methods", [
    Feature("plain autoencoder", ". . Y . Y Y . Y . . .", ("test_ae.py::test_loss_by_hand",), ("ae",)),
    Feature("VAE, beta-VAE", "Y Y Y Y Y Y Y Y . Y Y", (f"{LAWS}::test_method_equals_its_limit",), ("vae", "beta_vae")),
    Feature("AnnealedVAE (capacity)", "Y Y . Y Y Y Y . . Y Y", (f"{LAWS}::test_capacity_schedule",), ("annealed_vae",)),
    Feature("FactorVAE", "Y Y . Y Y Y Y . Y P Y", (f"{LAWS}::test_factor_vae_terms_by_hand",), ("factor_vae",)),
    Feature("beta-TCVAE", "Y Y Y Y Y Y Y Y . Y Y", (f"{LAWS}::test_total_correlation_equals_its_loops",),
        ("beta_tcvae",)),
    Feature("DIP-VAE I, II", "Y Y Y . . Y . . . P Y", (f"{LAWS}::test_dip_covariances_equal_their_loops",),
        ("dip_vae_i", "dip_vae_ii")),
    Feature("InfoVAE, MMD", ". . Y . Y Y . . . Y .", ("test_info_vae.py::test_mmd_of_two_normals_is_known",),
        ("info_vae",)),
    Feature("ControlVAE, DynamicVAE", ". Y . . . . . . . . .",
        ("test_control_vae.py::test_controller_equals_its_loops",
         "test_control_vae.py::test_the_kl_reaches_its_set_value"), ("control_vae", "dynamic_vae")),
    Feature("JointVAE (continuous and categorical latents)", ". . . . . . . . . Y .",
        ("test_joint_vae.py::test_terms_by_hand", "test_joint_vae.py::test_concrete_samples_have_the_gumbel_max_law",
         "test_joint_vae.py::test_traversal_shows_every_value"), ("joint_vae",), elsewhere="Schlumberger/joint-vae"),
    Feature("DeVAE (hierarchical latent spaces)", ". Y . . . . . . . . .",
        ("test_devae.py::test_loss_is_a_sum_of_beta_vaes", "test_devae.py::test_spaces_are_rescaled_copies"),
        ("devae",)),
    Feature("CascadeVAE-C, DEFT", ". Y . . . . . . . . .",
        ("test_cascade_vae.py::test_default_weights_are_those_of_the_authors",
         "test_cascade_vae.py::test_latents_become_informative_one_after_another",
         "test_deft.py::test_gradients_of_groups_are_those_of_a_beta_vae_times_a_factor",
         "test_deft.py::test_groups_become_informative_one_after_another"), ("cascade_vae_c", "deft"),
        elsewhere="snu-mllab/DisentanglementICML19 (CascadeVAE)"),
    Feature("DFC, perceptual losses", ". . Y . P . . . . Y .",
        ("test_dfc_vae.py::test_loss_by_hand", "test_dfc_vae.py::test_features_of_a_trained_encoder",
         "test_vgg19.py::test_features_equal_those_of_the_whole_network", "test_vgg19.py::test_loss_by_hand"),
        ("dfc_vae",)),
    Feature("Group-VAE, ML-VAE (known number of changes)", "Y . . . . . . . . . .",
        (f"{PAIRS}::test_count_by_hand", "test_group_vae.py::test_product_by_hand",
         "test_group_vae.py::test_as_many_latents_as_factors_changed_are_kept_apart"), ("group_vae", "ml_vae")),
    Feature("Ada-GVAE, Ada-ML-VAE", "Y . Y . . . Y . . . .", (f"{PAIRS}::test_ada_objective_sums_its_terms",),
        ("ada_gvae", "ada_mlvae"), elsewhere="JacopoDapueto/transfer_disentanglement"),
    Feature("semi-supervised methods (few labels)", "Y . . . . P . . . . .",
        (f"{LAWS}::test_method_equals_its_limit", "test_semi_vae.py::test_labels_tie_latents_to_factors",
         "test_semi_vae.py::test_imprecise_labels_are_fixed_and_drawn_by_the_label_seed"), ("semi_vae",)),
    Feature("triplet methods", ". . Y . . . . . . . .",
        ("test_triplet_vae.py::test_loss_by_hand",
         "test_triplet_vae.py::test_second_examples_are_nearer_than_third_ones",
         "test_ada_tvae.py::test_loss_equals_its_loops"), ("triplet_vae", "ada_tvae")),
    Feature("HFS (factorised support), also added to other VAEs", ". . . . . . Y . . . .",
        ("test_hfs.py::test_distance_equals_its_loops",
         "test_hfs.py::test_a_grid_has_distance_zero_also_if_it_is_correlated",
         "test_added_support.py::test_the_term_can_be_added_to_every_vae"), ("hfs",)),
    Feature("QLAE (quantised codes with learned values)", ". . . . . . . Y . . .",
        (f"{QUANTISED}::test_terms_of_qlae_by_hand",
         f"{QUANTISED}::test_codes_traversals_and_reconstructions_lie_on_the_grid"),
        ("qlae",), elsewhere="lucidrains/vector-quantize-pytorch"),
    Feature("FSQ (codes on a fixed grid)", ". . . . . . . P . . .",
        (f"{QUANTISED}::test_grid_of_fsq_is_equally_spaced", f"{QUANTISED}::test_gradient_passes_through_unchanged"),
        ("fsq",), elsewhere="lucidrains/vector-quantize-pytorch"),
    Feature("sparse autoencoders (TopK, ReLU with L1, JumpReLU)", ". . . . . . . . . . .",
        ("test_sae.py::test_activations_by_hand", "test_sae.py::test_recovers_the_features_of_sparse_mixtures"),
        ("sae",), elsewhere="SAELens, dictionary_learning"),
    Feature("Tripod", ". . . . . . . Y . . .",
        ("test_tripod.py::test_multi_information_equals_its_loops",
         "test_tripod.py::test_share_of_mixed_derivatives_is_known"), ("tripod",), elsewhere="kylehkhsu/tripod"),
    Feature("penalties on the decoder's Jacobian and Hessian, for every method", ". . . . . . . . . . .",
        ("test_decoder_penalties.py::test_all_columns_give_the_exact_penalties",
         "test_decoder_penalties.py::test_variance_over_signs_is_the_sum_of_mixed_derivatives"),
        elsewhere="wpeebles/hessian_penalty, csyxwei/OroJaR"),
    Feature("PCA and ICA, autoencoder with ICA", ". . . . . . . . . . .",
        ("test_linear_codes.py::test_pca_of_a_run_equals_scikit_learn",
         "test_linear_codes.py::test_fast_ica_equals_scikit_learn",
         "test_linear_codes.py::test_an_autoencoder_with_ica_reconstructs_like_the_autoencoder"),
        ("pca", "ica", "ae_ica"), elsewhere="scikit-learn (PCA, FastICA)"),
    Feature("S-VAE (von Mises-Fisher)", ". . . . Y . . . . . .",
        ("test_s_vae.py::test_kl_equals_numerical_integration", "test_s_vae.py::test_samples_follow_the_density"),
        ("s_vae",), elsewhere="nicola-decao/s-vae-pytorch"),
    Feature("Poincare VAE (wrapped or Riemannian normal)", ". . . . Y . . . . . .",
        ("test_poincare_vae.py::test_translation_is_moebius_addition",
         "test_poincare_vae.py::test_density_integrates_to_one",
         "test_riemannian_normal.py::test_samples_follow_the_density",
         "test_poincare_vae.py::test_riemannian_kl_equals_numerical_integration",
         "test_gyroplanes.py::test_distances_are_those_of_the_formula_in_the_ball"), ("poincare_vae",),
        elsewhere="emilemathieu/pvae"),
    Feature("Diffusion VAE (sphere, torus, projective space)", ". . . . . . . . . . .",
        ("test_diffusion_vae.py::test_terms_by_hand",), ("diffusion_vae",),
        elsewhere="LuisArmandoPerez/DiffusionVAE (Keras)"),
    Feature("SlowVAE", ". . . . . . . . . . .", (f"{PAIRS}::test_slow_objective_sums_its_terms",), ("slow_vae",),
        elsewhere="bethgelab/slow_disentanglement"),
    Feature("PCL", ". . . . . . . . . . .", ("test_pcl.py::test_loss_equals_its_loops",), ("pcl",)),
    Feature("iVAE", ". . . . . . . . . . .", ("test_ivae.py::test_kl_equals_torch",
        "test_ivae.py::test_the_prior_of_each_value_learns_its_examples"), ("ivae",), elsewhere="ilkhem/icebeem"),
    Feature("ICE-BeeM", ". . . . . . . . . . .", ("test_ice_beem.py::test_loss_and_denoising_by_hand",
        "test_ice_beem.py::test_recovers_nonstationary_sources_of_linear_mixtures"), ("ice_beem",),
        elsewhere="ilkhem/icebeem"),
    Feature("contrastive inversion (cl-ica)", ". . . . . . . . . . .",
        ("test_cl_ica.py::test_loss_equals_its_loops", "test_cl_ica.py::test_recovers_the_sources_of_linear_mixtures"),
        ("cl_ica",), elsewhere="brendel-group/cl-ica"),
    Feature("PMP", ". . . . . . . . . . .", ("test_pmp.py::test_losses_equal_their_loops",), ("pmp",),
        elsewhere="marc0git/PMPdisentanglement (a notebook)"),
    Feature("VITAE", ". . . . . . . . . . .", (f"{VITAE}::test_with_identity_perspective_it_is_a_vae",),
        ("u_vitae", "c_vitae"), elsewhere="SkafteNicki/unsuper"),
    Feature("LSBD-VAE (circles and known rotations)", ". . . . . . . . . . .",
        ("test_lsbd_vae.py::test_the_distance_is_zero_for_equivariant_codes_and_known_for_others",
         "test_lsbd_vae.py::test_labelled_pairs_make_the_factors_rotations"), ("lsbd_vae",),
        elsewhere="luis-armando-perez-rey/lsbd-vae (TensorFlow)"),
    Feature("group-theory and commutative VAEs", ". . . . . . . . . . Y",
        ("test_commutative_vae.py::test_penalties_equal_their_loops",
         "test_commutative_vae.py::test_mixed_second_derivatives_are_zero_without_products",
         "test_matrix_exponential.py::test_equals_scipy",
         "test_groupified_vae.py::test_loss_equals_its_loops_over_all_pairs"), ("commutative_vae", "groupified_vae"),
        elsewhere="zhuxinqimac/CommutativeLieGroupVAE-Pytorch, ThomasMrY/Groupified-VAE"),
    Feature("sequential methods with several factors", ". . . . . . . . . . .",
        elsewhere="azencot-group/MSD-Benchmark"),
    Feature("disentangled diffusion models", ". . . . . . . . . . .", elsewhere="ThomasMrY/DisDiff"),
])  # fmt: skip
METRICS = FeatureTable("Metrics", ("DL", "ER", "DIS", "YD", "PY", "AA", "DCF", "LQ", "UB", "SM"), "metrics", [
    Feature("BetaVAE score (Z-diff)", "Y Y . . . P . . Y .", (f"{LINEAR}::test_golden_beta_vae",), ("beta_vae",)),
    Feature("FactorVAE score (Z-min-var)", "Y Y Y . . P . . Y .", (f"{GOLDEN}::test_golden_factor_vae",),
        ("factor_vae",)),
    Feature("MIG", "Y Y Y Y . P Y . Y Y", (f"{GOLDEN}::test_golden_information",), ("mig",), elsewhere="latte-metrics"),
    Feature("DCI", "Y Y Y . . P Y Y Y Y", ("test_dci.py::test_golden_dci",), ("dci",)),
    Feature("SAP", "Y Y Y . . P Y . Y Y", (f"{GOLDEN}::test_golden_sap",), ("sap",), elsewhere="latte-metrics"),
    Feature("modularity", "Y Y . . . . Y . Y Y", (f"{GOLDEN}::test_golden_information",), ("modularity",),
        elsewhere="latte-metrics"),
    Feature("explicitness", "Y Y . . . . . . Y .", (f"{LINEAR}::test_golden_explicitness",), ("explicitness",)),
    Feature("IRS", "Y Y . . . P . . Y .", (f"{INFORMATION}::test_golden_irs",), ("irs",)),
    Feature("UDR (selection without labels)", "Y Y . . . . . . . .", ("test_udr.py::test_golden_udr",)),
    Feature("ModelCentrality, PIPE (selection without labels)", ". . . . . . . . . .",
        ("test_selection_criteria.py::test_model_centrality_ranks_planted_models",
         "test_selection_criteria.py::test_pipe_of_a_rotated_square_is_known"),
        elsewhere="fjxmlzn/InfoGAN-CR, besterma/dava"),
    Feature("similarity of the codes of two models (CKA, Procrustes, stitching)", ". . . . . . . . . .",
        ("test_similarity.py::test_cka_equals_its_oracle",
         "test_code_comparison.py::test_a_rotated_copy_is_similar_and_can_be_stitched")),
    Feature("Gaussian total correlation, Wasserstein, information", "Y Y Y . . . . . . .",
        (f"{GOLDEN}::test_golden_unsupervised",), ("unsupervised",)),
    Feature("downstream accuracy and efficiency", "Y Y . . . . . . . .",
        (f"{LINEAR}::test_golden_downstream_lr", f"{LINEAR}::test_golden_downstream_gbt"),
        ("downstream_lr", "downstream_gbt")),
    Feature("fairness", "Y Y . . . . . . . .", ("test_fairness.py::test_golden_aggregates",), ("fairness",)),
    Feature("strong and reduced downstream, unified scores", "Y Y . . . . . . . .",
        ("test_metrics.py::test_equals_its_oracle", "test_metrics.py::test_known_score",
         f"{INTERVENTIONS}::test_the_fixed_factor_has_one_value_in_training_and_others_in_the_test",
         "test_unified.py::test_dci_mig_modularity_and_sap_are_special_cases"),
        ("strong_downstream", "reduced_downstream", "unified")),
    Feature("abstract reasoning", "Y . . . . . . . . .",
        ("test_puzzles.py::test_the_rule_has_exactly_one_solution",
         "test_relation_network.py::test_network_equals_its_loops")),
    Feature("DCIMIG, JEMMIG, MIG-sup", ". P . . . . . . Y .",
        ("test_metrics.py::test_equals_its_oracle", f"{INFORMATION}::test_jemmig_in_nats_equals_its_oracle",
         f"{INFORMATION}::test_mig_sup_is_mig_with_codes_and_factors_exchanged"), ("dcimig", "jemmig", "mig_sup")),
    Feature("Z-max-var", ". . . . . . . . Y .",
        ("test_metrics.py::test_equals_its_oracle",
         f"{INTERVENTIONS}::test_only_settings_with_two_values_are_used_in_each_half"), ("z_max_var",)),
    Feature("InfoMEC", ". . . . . . . Y . .", (f"{INFORMATION}::test_all_infomec_scores_equal_their_oracles",),
        ("infomec",)),
    Feature("MCC", ". . . . . . . . . .", (f"{INFORMATION}::test_mcc_of_ranks_equals_its_oracle",), ("mcc",),
        elsewhere="slow_disentanglement, cl-ica"),
    Feature("D_LSBD (linear symmetry-based disentanglement)", ". . . . . . . . . .",
        ("test_metrics.py::test_equals_its_oracle", "test_metrics.py::test_known_score"), ("d_lsbd",),
        elsewhere="luis-armando-perez-rey/lsbd-vae"),
    Feature("DCI-ES (explicitness and size)", ". . . . . . . . . .",
        (f"{PEER_METRICS}::test_explicitness_by_hand",
         f"{PEER_METRICS}::test_probes_equal_trees_that_are_fitted_for_each_depth",
         "test_probes.py::test_a_network_finds_the_parity_that_a_linear_probe_misses",
         "test_probes.py::test_random_features_equal_their_oracle"), ("dci_es",),
        elsewhere="andreinicolicioiu/DCI-ES"),
    Feature("OMES", ". . . . . . . . . .",
        (f"{PEER_METRICS}::test_association_scores_by_hand",
         f"{PEER_METRICS}::test_pairs_differ_in_one_factor_and_are_uniform"), ("omes",),
        elsewhere="transfer_disentanglement"),
    Feature("SNC, neuron knockout", ". . . . . . . . . .",
        (f"{PEER_METRICS}::test_the_assignment_maximises_the_total_information",
         f"{PEER_METRICS}::test_a_factor_without_a_latent_loses_nothing"), ("snc", "nk"), elsewhere="Lou1sM/snc_nk"),
    Feature("AAM, flatness, factorised-support score", ". . P P . . P . . .",
        ("test_metrics.py::test_equals_its_oracle", "test_metrics.py::test_known_score",
         f"{PEER_METRICS}::test_batches_of_the_support_are_averaged"), ("aam", "flatness", "factorised_support")),
    Feature("linearity and distances along factors", ". . Y . . . . . . .",
        ("test_metrics.py::test_known_score",
         "test_linearity.py::test_all_scores_equal_loops_over_all_traversals_and_pairs"), ("linearity",)),
    Feature("judgement by vision-language models", ". . . . . . . . . .", elsewhere="MSD-Benchmark"),
])  # fmt: skip
DATA = FeatureTable("Data", ("DL", "ER", "DIS", "YD", "AA", "DCF", "LQ", "FV", "SM"), "data", [
    Feature("dSprites", "Y Y Y Y Y Y Y Y Y", ("test_datasets.py::test_dsprites_has_the_known_checksum",
        f"{READERS}::test_dsprites_is_read_from_npz_and_hdf5"), ("dsprites", "dsprites_file")),
    Feature("coloured, noisy and painted dSprites", "Y Y . . Y . . . .",
        ("test_painted.py::test_painted_images_follow_their_definitions",),
        ("color_dsprites", "noisy_dsprites", "scream_dsprites")),
    Feature("SmallNORB", "Y Y Y . Y Y . . .",
        (f"{LABELLED}::test_smallnorb_is_read_with_instances_outside_the_factors",),
        ("smallnorb",)),
    Feature("Cars3D", "Y Y Y . Y Y . . Y",
        ("test_cars3d.py::test_cars3d_is_read_from_the_archive_sorted_by_name",), ("cars3d",)),
    Feature("Shapes3D", "P Y Y . . Y Y . Y", (f"{READERS}::test_shapes3d_is_read_and_its_labels_checked",),
        ("shapes3d",)),
    Feature("MPI3D", "P Y Y . P Y Y . .",
        (f"{READERS}::test_number_of_images_decides_the_grid_of_mpi3d",),
        ("mpi3d_toy", "mpi3d_realistic", "mpi3d_real", "mpi3d_complex")),
    Feature("Isaac3D, Falcor3D", ". . . . . . Y . .",
        ("test_nvidia3d.py::test_pictures_are_read_from_a_folder_and_from_a_zip_archive",), ("isaac3d", "falcor3d")),
    Feature("CelebA, MNIST, Fashion-MNIST, 3D chairs", ". P . Y P Y P Y P",
        (f"{LABELLED}::test_celeba_is_read_in_the_order_of_its_list",
         f"{LABELLED}::test_mnist_is_read_and_padded",
         "test_chairs3d.py::test_renderings_are_read_from_the_archive_and_from_a_folder"),
        ("celeba", "mnist", "fashion_mnist", "chairs3d")),
    Feature("body meshes (FAUST) and bodies that are generated", ". . . . . . . . .",
        ("test_mesh_readers.py::test_faust_is_read_by_subject_and_pose",
         "test_bodies.py::test_bodies_are_closed_and_of_human_size"), ("faust", "bodies", "body_images")),
    Feature("correlated factors", ". P . . . Y . . .",
        (f"{SAMPLING}::test_joint_distribution_of_correlated_factors",)),
    Feature("held-out combinations of factors", ". . . . . Y . . .",
        ("test_holdout.py::test_training_draws_every_example_of_its_side_and_no_other",
         "test_holdout_sides.py::test_two_rows_per_run_equal_the_scores_of_each_side"),
        elsewhere="mmrl/disent-and-gen, bethgelab/InDomainGeneralizationBenchmark"),
    Feature("pairs, triplets and walks of examples", "P . Y . . P . . .",
        (f"{SAMPLING}::test_k_changed_factors", f"{SAMPLING}::test_each_step_of_a_walk_changes_one_factor_by_one",
         f"{SAMPLING}::test_triplets_are_independent_examples_in_the_order_of_their_distances")),
    Feature("synthetic data that needs no download", "P P Y . . . . . .",
        ("test_data_command.py::test_built_in_needs_no_files",),
        ("sprites", "toy", "shapes3d_rendered", "square_torus")),
    Feature("KITTI masks, Natural Sprites", ". . . . . . . . .",
        ("test_kitti_masks.py::test_masks_are_read_and_labelled_by_their_centre_and_area",
         "test_natural_sprites.py::test_sprites_have_the_measured_positions_and_areas"),
        ("kitti_masks", "natural_sprites"), elsewhere="slow_disentanglement"),
])  # fmt: skip
PIPELINE = FeatureTable("Pipeline", ("DL", "DIS", "YD", "PY", "AA", "DCF", "LQ", "PV", "LI", "SL", "MV"), "", [
    Feature("installs with pip on Python 3.11", ". P . Y . . P . Y P Y", ("test_cli.py::test_every_command_has_help",),
        partly="from a checkout"),
    Feature("command line", "Y . Y . Y Y P P Y P .", ("test_cli.py::test_every_field_is_a_flag_with_help",)),
    Feature("an interrupted run resumes", "Y . . P Y Y P . Y Y Y",
        ("test_training.py::test_a_killed_command_resumes",)),
    Feature("sweeps and studies", "Y Y P . P Y Y . . . .",
        ("test_study.py::test_a_study_runs_and_its_table_is_complete",
         "test_cli.py::test_train_a_sweep_and_score_it_twice")),
    Feature("many models at once on one GPU", ". . . . . . . . . . .",
        ("test_gpu.py::test_a_run_in_a_large_stack_equals_the_run_alone", f"{LAWS}::test_stack_equals_single_runs")),
    Feature("one model on several GPUs", ". Y . Y . . . Y Y Y .",
        ("test_divided.py::test_two_processes_equal_one",
         "test_divided.py::test_batches_divide_unless_a_method_has_statistics_of_batches",
         "test_divided.py::test_an_interrupted_run_resumes_with_the_same_bits"),
        partly="tested on CPUs, not on several GPUs; methods whose loss is a mean over examples"),
    Feature("a table of all results, without a service", "Y . P . . . . P P . .",
        ("test_study.py::test_the_table_is_written_again_from_merged_copies",)),
    Feature("figures of a study, traversals", "P P Y . P P P P . P P",
        ("test_study_commands.py::test_analyse_writes_the_answers_and_lists_the_others",
         "test_cli.py::test_traverse_writes_pictures")),
    Feature("HTML report", ". . . . . . . . . . .",
        ("test_report.py::test_the_command_writes_the_page_and_prints_its_path",)),
    Feature("sliders for latents in a browser", ". . . . . . . . . . .",
        ("test_report_browser.py::test_sliders_change_the_decoded_image",)),
    Feature("pretrained models", ". . Y Y . . P . . . Y",
        ("test_zoo.py::test_the_package_has_a_model_of_dsprites_that_has_learned_the_position",
         "test_zoo.py::test_kept_scores_are_computed_again"),
        partly=f"{zoo_contents()}, in the package"),
    Feature("documentation site", ". Y . Y . . . . Y Y Y", ("test_site.py::test_every_page_is_in_the_navigation",)),
    Feature("tests in continuous integration", "P Y . Y P . . P Y Y Y",
        (f"{LAWS}::test_families_cover_the_registry", "test_metrics.py::test_tables_cover_the_registry")),
])  # fmt: skip
TABLES = (METHODS, METRICS, DATA, PIPELINE)
