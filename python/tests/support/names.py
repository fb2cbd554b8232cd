# SPDX-License-Identifier: Apache-2.0
"""The names that users of MinkowskiEngine 0.5.4 rely on, with the arguments of each: what names_test.py goes through."""

ENUMERATIONS = {
    "BroadcastMode": "ELEMENTWISE_ADDITON ELEMENTWISE_MULTIPLICATION",
    "CoordinateMapType": "CPU CUDA",
    "GPUMemoryAllocatorType": "PYTORCH CUDA",
    "MinkowskiAlgorithm": "DEFAULT MEMORY_EFFICIENT SPEED_OPTIMIZED",
    "PoolingMode": "LOCAL_SUM_POOLING LOCAL_AVG_POOLING LOCAL_MAX_POOLING GLOBAL_SUM_POOLING_DEFAULT "
    "GLOBAL_AVG_POOLING_DEFAULT GLOBAL_MAX_POOLING_DEFAULT GLOBAL_SUM_POOLING_KERNEL GLOBAL_AVG_POOLING_KERNEL "
    "GLOBAL_MAX_POOLING_KERNEL GLOBAL_SUM_POOLING_PYTORCH_INDEX GLOBAL_AVG_POOLING_PYTORCH_INDEX "
    "GLOBAL_MAX_POOLING_PYTORCH_INDEX",
    "RegionType": "HYPER_CUBE HYPER_CROSS CUSTOM",
    "SparseTensorOperationMode": "SEPARATE_COORDINATE_MANAGER SHARE_COORDINATE_MANAGER",
    "SparseTensorQuantizationMode": "RANDOM_SUBSAMPLE UNWEIGHTED_AVERAGE UNWEIGHTED_SUM NO_QUANTIZATION MAX_POOL "
    "SPLAT_LINEAR_INTERPOLATION",
}

# "name=default" as str() writes it; a name alone has no default. Methods stand under their class.
_CONV = "in_channels out_channels kernel_size=-1 stride=1 dilation=1 bias=False kernel_generator=None"
_TAIL = "convolution_mode=ConvolutionMode.DEFAULT dimension=None groups=1"  # the last is ours, by keyword alone
_POOL = "stride=1 dilation=1 kernel_generator=None dimension=None"
_KERNEL_MAP = (
    "in_key out_key stride=1 kernel_size=3 dilation=1 region_type=RegionType.HYPER_CUBE region_offset=None "
    "is_transpose=False is_pool=False"
)
_TENSOR = "allocator_type=None minkowski_algorithm=None requires_grad=None device=None"

CLASSES = {
    "CoordinateManager": "D=0 num_threads=-1 coordinate_map_type=None allocator_type=None minkowski_algorithm=None",
    "CoordinateManager.exists_field_to_sparse": "field_map_key sparse_map_key",
    "CoordinateManager.field_to_sparse_insert_and_map": "field_map_key sparse_tensor_stride sparse_tensor_string_id=",
    "CoordinateManager.field_to_sparse_keys": "field_map_key",
    "CoordinateManager.field_to_sparse_map": "field_map_key sparse_map_key",
    "CoordinateManager.get_coordinate_field": "coords_key_or_tensor_strides",
    "CoordinateManager.get_coordinates": "coords_key_or_tensor_strides",
    "CoordinateManager.get_field_to_sparse_map": "field_map_key sparse_map_key",
    "CoordinateManager.get_kernel_map": _KERNEL_MAP,
    "CoordinateManager.get_unique_coordinate_map_key": "tensor_stride",
    "CoordinateManager.insert_and_map": "coordinates tensor_stride=1 string_id=",
    "CoordinateManager.insert_field": "coordinates tensor_stride string_id=",
    "CoordinateManager.interpolation_map_weight": "key samples",
    "CoordinateManager.kernel_map": _KERNEL_MAP,
    "CoordinateManager.number_of_unique_batch_indices": "",
    "CoordinateManager.origin": "",
    "CoordinateManager.origin_field": "",
    "CoordinateManager.origin_field_map": "key",
    "CoordinateManager.origin_map": "key",
    "CoordinateManager.size": "coordinate_map_key",
    "CoordinateManager.stride": "coordinate_map_key stride string_id=",
    "CoordinateManager.stride_map": "in_key stride_key",
    "CoordinateManager.union_map": "in_keys out_key",
    "CoordsManager": "*args **kwargs",
    "KernelGenerator": "kernel_size=-1 stride=1 dilation=1 is_transpose=False region_type=RegionType.HYPER_CUBE "
    "region_offsets=None expand_coordinates=False axis_types=None dimension=-1",
    "KernelGenerator.get_kernel": "tensor_stride is_transpose",
    "KernelRegion": "kernel_size kernel_stride kernel_dilation region_type offset dimension",
    "MinkowskiAvgPooling": f"kernel_size=-1 {_POOL}",
    "MinkowskiBatchNorm": "num_features eps=1e-05 momentum=0.1 affine=True track_running_stats=True",
    "MinkowskiBatchNorm.forward": "input",
    "MinkowskiBroadcast": "*args **kwargs",
    "MinkowskiBroadcast.forward": "input input_glob",
    "MinkowskiBroadcastAddition": "",
    "MinkowskiBroadcastConcatenation": "*args **kwargs",
    "MinkowskiBroadcastConcatenation.forward": "input input_glob",
    "MinkowskiBroadcastMultiplication": "",
    "MinkowskiChannelwiseConvolution": "in_channels kernel_size=-1 stride=1 dilation=1 bias=False "
    "kernel_generator=None dimension=-1",
    "MinkowskiChannelwiseConvolution.forward": "input coords=None",
    "MinkowskiChannelwiseConvolution.reset_parameters": "is_transpose=False",
    "MinkowskiConvolution": f"{_CONV} expand_coordinates=False {_TAIL}",
    "MinkowskiConvolutionTranspose": f"{_CONV} expand_coordinates=False {_TAIL}",
    "MinkowskiGenerativeConvolutionTranspose": f"{_CONV} {_TAIL}",
    "MinkowskiGlobalAvgPooling": "mode=PoolingMode.GLOBAL_AVG_POOLING_PYTORCH_INDEX",
    "MinkowskiGlobalMaxPooling": "mode=PoolingMode.GLOBAL_MAX_POOLING_PYTORCH_INDEX",
    "MinkowskiGlobalMaxPooling.forward": "input coordinates=None",
    "MinkowskiGlobalPooling": "mode=PoolingMode.GLOBAL_AVG_POOLING_PYTORCH_INDEX",
    "MinkowskiGlobalPooling.forward": "input coordinates=None",
    "MinkowskiGlobalSumPooling": "mode=PoolingMode.GLOBAL_SUM_POOLING_PYTORCH_INDEX",
    "MinkowskiInstanceNorm": "num_features",
    "MinkowskiInstanceNorm.forward": "input",
    "MinkowskiInstanceNorm.reset_parameters": "",
    "MinkowskiInterpolation": "return_kernel_map=False return_weights=False",
    "MinkowskiInterpolation.forward": "input tfield",
    "MinkowskiLinear": "in_features out_features bias=True",
    "MinkowskiLinear.forward": "input",
    "MinkowskiMaxPooling": f"kernel_size {_POOL}",
    "MinkowskiModuleBase": "*args **kwargs",
    "MinkowskiNetwork": "D",
    "MinkowskiNetwork.forward": "x",
    "MinkowskiNetwork.init": "x",
    "MinkowskiPoolingTranspose": "kernel_size stride dilation=1 kernel_generator=None expand_coordinates=False "
    "dimension=None",
    "MinkowskiPruning": "",
    "MinkowskiPruning.forward": "input mask",
    "MinkowskiSinusoidal": "in_channel out_channel",
    "MinkowskiSinusoidal.forward": "input",
    "MinkowskiStableInstanceNorm": "num_features",
    "MinkowskiStableInstanceNorm.forward": "x",
    "MinkowskiStableInstanceNorm.reset_parameters": "",
    "MinkowskiStackCat": "*args",
    "MinkowskiStackCat.forward": "x",
    "MinkowskiStackMean": "*args",
    "MinkowskiStackMean.forward": "x",
    "MinkowskiStackSum": "*args",
    "MinkowskiStackSum.forward": "x",
    "MinkowskiStackVar": "*args",
    "MinkowskiStackVar.forward": "x",
    "MinkowskiSumPooling": f"kernel_size {_POOL}",
    "MinkowskiSyncBatchNorm": "num_features eps=1e-05 momentum=0.1 affine=True track_running_stats=True "
    "process_group=None",
    "MinkowskiSyncBatchNorm.convert_sync_batchnorm": "module process_group=None",
    "MinkowskiSyncBatchNorm.forward": "input",
    "MinkowskiToDenseTensor": "shape=None",
    "MinkowskiToDenseTensor.forward": "input",
    "MinkowskiToFeature": "*args **kwargs",
    "MinkowskiToFeature.forward": "x",
    "MinkowskiToSparseTensor": "remove_zeros=True coordinates=None",
    "MinkowskiToSparseTensor.forward": "input",
    "MinkowskiUnion": "",
    "MinkowskiUnion.forward": "*inputs",
    "SparseTensor": "features coordinates=None tensor_stride=1 coordinate_map_key=None coordinate_manager=None "
    f"quantization_mode=SparseTensorQuantizationMode.RANDOM_SUBSAMPLE {_TENSOR}",
    "SparseTensor.cat_slice": "X",
    "SparseTensor.dense": "shape=None min_coordinate=None contract_stride=True",
    "SparseTensor.features_at_coordinates": "query_coordinates",
    "SparseTensor.initialize_coordinates": "coordinates features coordinate_map_key",
    "SparseTensor.interpolate": "X",
    "SparseTensor.slice": "X",
    "SparseTensor.sparse": "min_coords=None max_coords=None contract_coords=True",
    "TensorField": "features coordinates=None tensor_stride=1 coordinate_field_map_key=None coordinate_manager=None "
    f"quantization_mode=SparseTensorQuantizationMode.UNWEIGHTED_AVERAGE {_TENSOR}",
    "TensorField.inverse_mapping": "sparse_tensor_map_key",
    "TensorField.sparse": "tensor_stride=1 coordinate_map_key=None quantization_mode=None",
    "TensorField.splat": "",
}

PROPERTIES = {
    "SparseTensor": "coordinate_key",
    "TensorField": "C coordinate_key coordinates",
}

# Methods of the engine's own key class, which shows no signatures.
KEY_METHODS = "get_coordinate_size get_key get_tensor_stride is_key_set set_key"

# Each holds the module of torch of that name.
WRAPPED = (
    "AdaptiveLogSoftmaxWithLoss AlphaDropout CELU Dropout ELU GELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU "
    "LogSigmoid LogSoftmax PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmin Softplus Softshrink Softsign Tanh "
    "Tanhshrink Threshold"
)

_KEYS = "in_coordinate_map_key out_coordinate_map_key=None coordinate_manager=None"
AUTOGRAD_FUNCTIONS = {
    "MinkowskiBroadcastFunction": "ctx input_features input_features_global operation_type in_coords_key "
    "glob_coords_key coords_manager",
    "MinkowskiConvolutionFunction": f"ctx input_features kernel_weights kernel_generator convolution_mode {_KEYS}",
    "MinkowskiConvolutionTransposeFunction": "ctx input_features kernel_weights kernel_generator convolution_mode "
    f"{_KEYS}",
    "MinkowskiDirectMaxPoolingFunction": "ctx in_map out_map in_feat out_nrows is_sorted=False",
    "MinkowskiGlobalPoolingFunction": f"ctx input_features pooling_mode {_KEYS}",
    "MinkowskiInstanceNormFunction": "ctx in_feat in_coords_key glob_coords_key=None coords_manager=None "
    "gpooling_mode=PoolingMode.GLOBAL_AVG_POOLING_KERNEL",
    "MinkowskiInterpolationFunction": "ctx input_features tfield in_coordinate_map_key coordinate_manager=None",
    "MinkowskiLocalPoolingFunction": f"ctx input_features pooling_mode kernel_generator {_KEYS}",
    "MinkowskiLocalPoolingTransposeFunction": f"ctx input_features pooling_mode kernel_generator {_KEYS}",
    "MinkowskiPruningFunction": "ctx in_feat mask in_coords_key out_coords_key=None coords_manager=None",
    "MinkowskiSPMMAverageFunction": "ctx rows cols size mat cuda_spmm_alg=1",
    "MinkowskiSPMMFunction": "ctx rows cols vals size mat cuda_spmm_alg=1",
    "MinkowskiUnionFunction": "ctx in_coords_keys out_coords_key coordinate_manager *in_feats",
}

FUNCTIONS = {
    "cat": "*sparse_tensors",
    "clear_global_coordinate_manager": "",
    "convert_region_type": "region_type tensor_stride kernel_size up_stride dilation region_offset axis_types dimension "
    "center=True",
    "convert_to_int_tensor": "arg dimension",
    "cuda_version": "",
    "cudart_version": "",
    "dense_coordinates": "shape",
    "get_gpu_memory_info": "",
    "get_kernel_volume": "region_type kernel_size region_offset axis_types dimension",
    "global_coordinate_manager": "",
    "is_cuda_available": "",
    "mean": "*sparse_tensors",
    "print_diagnostics": "",
    "set_global_coordinate_manager": "coordinate_manager",
    "set_gpu_allocator": "backend",
    "set_memory_manager_backend": "backend",
    "set_sparse_tensor_operation_mode": "operation_mode",
    "sparse_tensor_operation_mode": "",
    "spmm": "rows cols vals size mat is_sorted=False cuda_spmm_alg=1",
    "sum": "*sparse_tensors",
    "to_sparse": "x format=None coordinates=None device=None",
    "to_sparse_all": "dense_tensor coordinates=None",
    "utils.SparseCollation": "limit_numpoints=-1 dtype=torch.int32 device=None",
    "utils.batch_sparse_collate": "data dtype=torch.int32 device=None",
    "utils.batched_coordinates": "coords dtype=torch.int32 device=None",
    "utils.fnv_hash_vec": "arr",
    "utils.kaiming_normal_": "tensor a=0 mode=fan_in nonlinearity=leaky_relu",
    "utils.ravel_hash_vec": "arr",
    "utils.sparse_collate": "coords feats labels=None dtype=torch.int32 device=None",
    "utils.sparse_quantize": "coordinates features=None labels=None ignore_label=-100 return_index=False "
    "return_inverse=False return_maps_only=False quantization_size=None device=cpu",
    "utils.summary": "model summary_input",
    "utils.unique_coordinate_map": "coordinates tensor_stride=1",
    "var": "*sparse_tensors",
    "modules.resnet_block.BasicBlock": "inplanes planes stride=1 dilation=1 downsample=None bn_momentum=0.1 "
    "dimension=-1",
    "modules.resnet_block.BasicBlock.forward": "self x",
    "modules.resnet_block.Bottleneck.forward": "self x",
    "modules.senet_block.SELayer.forward": "self x",
    "modules.senet_block.SEBasicBlock.forward": "self x",
    "modules.senet_block.SEBottleneck.forward": "self x",
    "modules.resnet_block.Bottleneck": "inplanes planes stride=1 dilation=1 downsample=None bn_momentum=0.1 "
    "dimension=-1",
    "modules.senet_block.SELayer": "channel reduction=16 D=-1",
    "modules.senet_block.SEBasicBlock": "inplanes planes stride=1 dilation=1 downsample=None reduction=16 D=-1",
    "modules.senet_block.SEBottleneck": "inplanes planes stride=1 dilation=1 downsample=None D=3 reduction=16",
    "MinkowskiOps._tuple_operator": "*sparse_tensors operator",
    "MinkowskiOps.cat": "*sparse_tensors",
    "MinkowskiOps._sum": "*sparse_tensors",
    "MinkowskiOps.mean": "*sparse_tensors",
    "MinkowskiOps.var": "*sparse_tensors",
    "MinkowskiOps.dense_coordinates": "shape",
    "MinkowskiOps.to_sparse": "x format=None coordinates=None device=None",
    "MinkowskiOps.to_sparse_all": "dense_tensor coordinates=None",
    "MinkowskiFunctional._wrap_tensor": "input F",
}

FUNCTIONAL = (
    "threshold relu hardtanh hardswish relu6 elu selu celu leaky_relu prelu rrelu glu gelu logsigmoid hardshrink "
    "tanhshrink softsign softplus softmin softmax softshrink gumbel_softmax log_softmax tanh sigmoid hardsigmoid silu "
    "batch_norm normalize linear dropout alpha_dropout"
)
LOSSES = (
    "binary_cross_entropy binary_cross_entropy_with_logits poisson_nll_loss cross_entropy hinge_embedding_loss kl_div "
    "l1_loss mse_loss multilabel_margin_loss multilabel_soft_margin_loss multi_margin_loss nll_loss smooth_l1_loss "
    "soft_margin_loss"
)
