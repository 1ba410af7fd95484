"""The shipped experiments by module, so that listing and finding them imports nothing. A test keeps it up to date."""

from __future__ import annotations

_LM_CLOUD = """
LargeMlp SmallMlp LmCloudTransformerAdam LmCloudTransformerAdamTest LmCloudTransformerAdamLimitSteps
LmCloudSpmdTest LmCloudSpmd2B LmCloudSpmd2BLimitSteps LmCloudSpmd32B LmCloudSpmd64B LmCloudSpmd128B LmCloudSpmd256B
LmCloudSpmd512B LmCloudSpmd1024B LmCloudSpmdPipeline9B LmCloudSpmdPipeline175B LmCloudSpmdMultislice2B
LmCloudSpmdPipelineMultislice2B LmCloudSpmdPipelineMultislice2BCircular
"""
_C4 = """
LmCloudSpmdAdam LmCloudSpmdAdamLimitSteps C4SpmdAdam C4SpmdGpt3AdamOrgHPBS1p5k1536Replicas C4SpmdPipelineAdam
C4SpmdPipelineGpt3AdamOrgHPBS1p5k768Replicas C4SpmdPipelineGpt3AdamMLPerfHPBS1p5k768Replicas
C4SpmdPipelineGpt3AdamMLPerfHPBS2k512Replicas C4SpmdPipelineGpt3AdamMLPerfHPBS3k768Replicas
C4SpmdPipelineGpt3AdamMLPerfHPBS4k1024Replicas C4SpmdPipelineGpt3AdamMLPerfHPBS8k1024Replicas C4Spmd1BAdam4Replicas
C4Spmd1BAdam4ReplicasLimitSteps C4Spmd2BAdam4Replicas C4Spmd16BAdam32Replicas C4Spmd32BAdam64Replicas
C4SpmdGpt3L16AdamOrgHP C4SpmdPipelineGpt3SmallAdam8Replicas C4SpmdPipelineGpt3SmallAdam64Replicas
"""
_C4_MULTISLICE = """
C4Spmd22BAdamMaxText C4Spmd22BAdam1xv4_128 C4Spmd22BAdam2xv4_128 C4Spmd22BAdam4xv4_128 C4Spmd22BAdam1xv4_128LimitSteps
C4Spmd22BAdam2xv4_128LimitSteps C4Spmd22BAdam4xv4_128LimitSteps C4Spmd22BAdam1xv4_384 C4Spmd22BAdam2xv4_384
C4Spmd22BAdam1xv4_8 C4Spmd22BAdam2xv4_8 C4Spmd22BAdam4xv4_8 C4Spmd22BAdam1xv4_8LimitSteps
C4Spmd22BAdam2xv4_8LimitSteps C4Spmd22BAdam4xv4_8LimitSteps C4SpmdGpt3AdamDataParallel2x16x16 C4Spmd32BAdam1xv5_256
C4Spmd32BAdam2xv5_256
"""

SHIPPED: dict[str, tuple[str, ...]] = {
    "xdpx.experiments.lm.lm_cloud": tuple(_LM_CLOUD.split()),
    "xdpx.experiments.lm.c4": tuple(_C4.split()),
    "xdpx.experiments.lm.c4_multislice": tuple(_C4_MULTISLICE.split()),
}
