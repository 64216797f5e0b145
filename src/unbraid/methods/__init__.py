"""Methods of representation learning. Each method is a frozen dataclass of hyperparameters with one objective.

`METHODS` maps the name of each method to its class. To add a method, write one file with a subclass of `Method`, add
one entry to `METHODS`, and add one entry to the table of its family in `tests/families`. To train a method of your own
without registering it, pass an instance of it to `unbraid.train`. Other packages add methods by entry points in the
group `unbraid.methods`.
"""

from __future__ import annotations

from unbraid.accel.adam import Adam
from unbraid.distributions import Gaussian
from unbraid.methods.ada_tvae import AdaTVAE
from unbraid.methods.ada_vae import AdaGVAE, AdaMLVAE
from unbraid.methods.ae import AE
from unbraid.methods.ae_ica import AEICA
from unbraid.methods.annealed_vae import AnnealedVAE
from unbraid.methods.beta_tcvae import BetaTCVAE
from unbraid.methods.beta_vae import BetaVAE
from unbraid.methods.cascade_vae import CascadeVAEC
from unbraid.methods.cl_ica import ClICA
from unbraid.methods.commutative_vae import CommutativeVAE
from unbraid.methods.control_vae import ControlVAE, DynamicVAE
from unbraid.methods.controls import Controls
from unbraid.methods.decoder_penalties import DecoderPenalties
from unbraid.methods.deft import DEFT
from unbraid.methods.devae import DeVAE
from unbraid.methods.dfc_vae import DFCVAE
from unbraid.methods.diffusion_vae import DiffusionVAE
from unbraid.methods.dip_vae import DIPVAEI, DIPVAEII
from unbraid.methods.factor_vae import FactorVAE
from unbraid.methods.fsq import FSQ
from unbraid.methods.group_vae import MLVAE, GroupVAE
from unbraid.methods.groupified_vae import GroupifiedVAE
from unbraid.methods.hfs import HFS
from unbraid.methods.ice_beem import ICEBeeM
from unbraid.methods.info_vae import InfoVAE
from unbraid.methods.ivae import IVAE
from unbraid.methods.joint_vae import JointVAE
from unbraid.methods.lsbd_vae import LSBDVAE
from unbraid.methods.method import Batch, EncoderOutput, Hyper, Loss, Method, setting
from unbraid.methods.pca import ICA, PCA
from unbraid.methods.pcl import PCL
from unbraid.methods.pmp import PMP
from unbraid.methods.poincare_vae import PoincareVAE
from unbraid.methods.qlae import QLAE
from unbraid.methods.s_vae import SVAE
from unbraid.methods.sae import SAE
from unbraid.methods.semi_vae import SemiVAE
from unbraid.methods.slow_vae import SlowVAE
from unbraid.methods.traversal import RowLabel, Traversal
from unbraid.methods.triplet_vae import TripletVAE
from unbraid.methods.tripod import Tripod
from unbraid.methods.vae import VAE, elbo
from unbraid.methods.vitae import CVITAE, UVITAE
from unbraid.nets.vae import VAENet as VAENet
from unbraid.noise import Noise
from unbraid.runtime.plugins import Registry

METHODS: Registry[type[Method]] = Registry("methods", {
    "ae": AE,
    "pca": PCA,
    "ica": ICA,
    "ae_ica": AEICA,
    "fsq": FSQ,
    "tripod": Tripod,
    "qlae": QLAE,
    "sae": SAE,
    "vae": VAE,
    "beta_vae": BetaVAE,
    "annealed_vae": AnnealedVAE,
    "joint_vae": JointVAE,
    "control_vae": ControlVAE,
    "dynamic_vae": DynamicVAE,
    "devae": DeVAE,
    "cascade_vae_c": CascadeVAEC,
    "deft": DEFT,
    "factor_vae": FactorVAE,
    "beta_tcvae": BetaTCVAE,
    "dip_vae_i": DIPVAEI,
    "dip_vae_ii": DIPVAEII,
    "info_vae": InfoVAE,
    "hfs": HFS,
    "dfc_vae": DFCVAE,
    "commutative_vae": CommutativeVAE,
    "groupified_vae": GroupifiedVAE,
    "semi_vae": SemiVAE,
    "ivae": IVAE,
    "ice_beem": ICEBeeM,
    "ada_gvae": AdaGVAE,
    "ada_mlvae": AdaMLVAE,
    "group_vae": GroupVAE,
    "ml_vae": MLVAE,
    "triplet_vae": TripletVAE,
    "ada_tvae": AdaTVAE,
    "slow_vae": SlowVAE,
    "pcl": PCL,
    "cl_ica": ClICA,
    "pmp": PMP,
    "diffusion_vae": DiffusionVAE,
    "s_vae": SVAE,
    "poincare_vae": PoincareVAE,
    "lsbd_vae": LSBDVAE,
    "u_vitae": UVITAE,
    "c_vitae": CVITAE,
})  # fmt: skip

__all__ = [
    "AE", "AEICA", "CVITAE", "DEFT", "DFCVAE", "DIPVAEI", "DIPVAEII", "FSQ", "HFS", "ICA", "IVAE", "LSBDVAE", "METHODS",
    "MLVAE", "PCA", "PCL", "PMP", "QLAE", "SAE", "SVAE", "UVITAE", "VAE", "AdaGVAE", "AdaMLVAE", "AdaTVAE", "Adam",
    "AnnealedVAE", "Batch", "BetaTCVAE", "BetaVAE", "CascadeVAEC", "ClICA", "CommutativeVAE", "ControlVAE", "Controls",
    "DeVAE", "DecoderPenalties", "DiffusionVAE", "DynamicVAE", "EncoderOutput", "FactorVAE", "Gaussian", "GroupVAE",
    "GroupifiedVAE", "Hyper", "ICEBeeM", "InfoVAE", "JointVAE", "Loss", "Method", "Noise", "PoincareVAE", "RowLabel",
    "SemiVAE", "SlowVAE", "Traversal", "TripletVAE", "Tripod", "elbo", "setting",
]  # fmt: skip
