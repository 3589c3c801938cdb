// The operators of ATen that a graph may hold: a packet a line, then its overloads. Made and
// reviewed with scripts/list_operators.py, which says what is left out and why.
#include "operators/allowed.h"

namespace heterog::operators {

std::string_view allowed_table() {
  return R"(
__and__ Scalar Tensor
__lshift__ Scalar Tensor
__or__ Scalar Tensor
__rshift__ Scalar Tensor
__xor__ Scalar Tensor
_adaptive_avg_pool2d default
_adaptive_avg_pool2d_backward default
_adaptive_avg_pool3d default
_adaptive_avg_pool3d_backward default
_aminmax default dim
_cdist_backward default
_cdist_forward default
_conj default
_conj_copy default
_conj_physical default
_convolution default deprecated
_ctc_loss Tensor default
_ctc_loss_backward Tensor default
_dirichlet_grad default
_efficientzerotensor default
_embedding_bag default
_embedding_bag_backward default
_embedding_bag_dense_backward default
_embedding_bag_forward_only default
_embedding_bag_per_sample_weights_backward default
_euclidean_dist default
_fused_adam default tensor_lr
_fused_adamw default tensor_lr
_fused_rms_norm default
_fused_rms_norm_backward default
_fused_sgd default tensor_lr
_grouped_mm default
_linalg_det default
_linalg_eigh default
_linalg_slogdet default
_linalg_solve_ex default
_linalg_svd default
_log_softmax default
_log_softmax_backward_data default
_logcumsumexp default
_lu_with_info default
_masked_scale default
_native_batch_norm_legit no_stats
_native_batch_norm_legit_functional default
_native_batch_norm_legit_no_training default
_neg_view default
_neg_view_copy default
_pdist_backward default
_pdist_forward default
_prelu_kernel default
_prelu_kernel_backward default
_reshape_alias default
_reshape_copy default
_safe_softmax default
_scaled_dot_product_attention_math default
_scaled_dot_product_efficient_attention default
_scaled_dot_product_efficient_attention_backward default
_scaled_dot_product_flash_attention_backward default
_scaled_dot_product_flash_attention_for_cpu default
_scaled_dot_product_flash_attention_for_cpu_backward default
_softmax default
_softmax_backward_data default
_standard_gamma_grad default
_to_copy default
_trilinear default
_unsafe_index Tensor
_unsafe_index_put default
_unsafe_view default
_upsample_bicubic2d_aa default vec
_upsample_bicubic2d_aa_backward default
_upsample_bilinear2d_aa default vec
_upsample_bilinear2d_aa_backward default
_upsample_nearest_exact1d default vec
_upsample_nearest_exact1d_backward default
_upsample_nearest_exact2d default vec
_upsample_nearest_exact2d_backward default
_upsample_nearest_exact3d default vec
_upsample_nearest_exact3d_backward default
_weight_norm_interface default
_weight_norm_interface_backward default
abs default
absolute default
acos default
acosh default
adaptive_avg_pool1d default
adaptive_avg_pool2d default
adaptive_avg_pool3d default
adaptive_max_pool1d default
adaptive_max_pool2d default
adaptive_max_pool2d_backward default
adaptive_max_pool3d default
adaptive_max_pool3d_backward default
add Scalar Tensor
addbmm default
addcdiv default
addcmul default
addmm default dtype
addmv default
addr default
adjoint default
affine_grid_generator default
affine_grid_generator_backward default
alias default
alias_copy default
all default dim dims
alpha_dropout default
amax default
amin default
aminmax default
angle default
any default dim dims
arange default start start_step
arccos default
arccosh default
arcsin default
arcsinh default
arctan default
arctan2 default
arctanh default
argmax default
argmin default
argsort default stable
argwhere default
as_strided default
as_strided_copy default
as_strided_scatter default
asin default
asinh default
atan default
atan2 default
atanh default
atleast_1d Sequence default
atleast_2d Sequence default
atleast_3d Sequence default
avg_pool1d default
avg_pool2d default
avg_pool2d_backward default
avg_pool3d default
avg_pool3d_backward default
baddbmm default dtype
bartlett_window default periodic
batch_norm default
bernoulli Tensor default p
bilinear default
binary_cross_entropy default
binary_cross_entropy_backward default
binary_cross_entropy_with_logits default
bincount default
bitwise_and Scalar Scalar_Tensor Tensor
bitwise_left_shift Scalar_Tensor Tensor Tensor_Scalar
bitwise_not default
bitwise_or Scalar Scalar_Tensor Tensor
bitwise_right_shift Scalar_Tensor Tensor Tensor_Scalar
bitwise_xor Scalar Scalar_Tensor Tensor
blackman_window default periodic
block_diag default
bmm default dtype
broadcast_tensors default
broadcast_to default
bucketize Scalar Tensor
cartesian_prod default
cat default
cauchy default
cdist default
ceil default
celu default
chain_matmul default
chalf default
channel_shuffle default
cholesky default
cholesky_inverse default
cholesky_solve default
chunk default
clamp Tensor default
clamp_max Tensor default
clamp_min Tensor default
clip Tensor default
clone default
col2im default
column_stack default
combinations default
complex default
concat default
concatenate default
conj default
conj_physical default
constant_pad_nd default
contiguous default
conv1d default padding
conv2d default padding
conv3d default padding
conv_tbc default
conv_tbc_backward default
conv_transpose1d default
conv_transpose2d input
conv_transpose3d input
convolution default
convolution_backward default
copy default
copysign Scalar Tensor
corrcoef default
cos default
cosh default
cosine_embedding_loss default
cosine_similarity default
count_nonzero default dim_IntList
cov default
cross default
cross_entropy_loss default
cummax default
cummaxmin_backward default
cummin default
cumprod default
cumprod_backward default
cumsum default
cumulative_trapezoid dx x
deg2rad default
det default
detach default
detach_copy default
diag default
diag_embed default
diagflat default
diagonal default
diagonal_backward default
diagonal_copy default
diagonal_scatter default
diff default
digamma default
dist default
div Scalar Scalar_mode Tensor Tensor_mode
divide Scalar Scalar_mode Tensor Tensor_mode
dot default
dropout default
dsplit array int
dstack default
einsum default
elu default
elu_backward default
embedding default
embedding_dense_backward default
embedding_renorm default
empty memory_format
empty_like default
empty_permuted default
empty_strided default
eq Scalar Tensor
erf default
erfc default
erfinv default
exp default
exp2 default
expand default
expand_as default
expand_copy default
expm1 default
exponential default
eye default m
feature_alpha_dropout default
feature_dropout default
fft_fft default
fft_fft2 default
fft_fftfreq default
fft_fftn default
fft_fftshift default
fft_hfft default
fft_hfft2 default
fft_hfftn default
fft_ifft default
fft_ifft2 default
fft_ifftn default
fft_ifftshift default
fft_ihfft default
fft_ihfft2 default
fft_ihfftn default
fft_irfft default
fft_irfft2 default
fft_irfftn default
fft_rfft default
fft_rfft2 default
fft_rfftfreq default
fft_rfftn default
fill Scalar Tensor
fix default
flatten using_ints
flatten_dense_tensors default
flip default
fliplr default
flipud default
float_power Scalar Tensor_Scalar Tensor_Tensor
floor default
floor_divide Scalar default
fmax default
fmin default
fmod Scalar Tensor
frac default
fractional_max_pool2d default
fractional_max_pool2d_backward default
fractional_max_pool3d default
fractional_max_pool3d_backward default
frexp Tensor
frobenius_norm dim
full default
full_like default
gather default
gather_backward default
gcd default
ge Scalar Tensor
gelu default
gelu_backward default
geometric default
geqrf default
ger default
glu default
glu_backward default
glu_backward_jvp default
glu_jvp default
gradient array scalararray scalarint scalarrayarray scalarrayint tensorarray tensorarrayint
greater Scalar Tensor
greater_equal Scalar Tensor
grid_sampler default
grid_sampler_2d default
grid_sampler_2d_backward default
grid_sampler_3d default
grid_sampler_3d_backward default
group_norm default
gru_cell default
gt Scalar Tensor
hamming_window default periodic periodic_alpha periodic_alpha_beta
hann_window default periodic
hardshrink default
hardshrink_backward default
hardsigmoid default
hardsigmoid_backward default
hardswish default
hardswish_backward default
hardtanh default
hardtanh_backward default
heaviside default
hinge_embedding_loss default
histc default
histogram bin_ct bins_tensor
histogramdd TensorList_bins default int_bins
hsplit array int
hstack default
huber_loss default
huber_loss_backward default
hypot default
i0 default
igamma default
igammac default
im2col default
imag default
index Tensor
index_add default
index_copy default
index_fill int_Scalar int_Tensor
index_put default
index_reduce default
index_select default
index_select_backward default
infinitely_differentiable_gelu_backward default
inner default
instance_norm default
inverse default
isclose default
isfinite default
isin Scalar_Tensor Tensor_Scalar Tensor_Tensor
isinf default
isnan default
isneginf default
isposinf default
isreal default
istft default
kaiser_window beta default periodic
kl_div default
kron default
kthvalue default
l1_loss default
layer_norm default
lcm default
ldexp Tensor
le Scalar Tensor
leaky_relu default
leaky_relu_backward default
lerp Scalar Tensor
less Scalar Tensor
less_equal Scalar Tensor
lgamma default
lift_fresh default
lift_fresh_copy default
linalg__powsum default
linalg_cholesky default
linalg_cholesky_ex default
linalg_cond default p_str
linalg_cross default
linalg_det default
linalg_diagonal default
linalg_eigh default
linalg_eigvalsh default
linalg_householder_product default
linalg_inv default
linalg_inv_ex default
linalg_ldl_factor default
linalg_ldl_factor_ex default
linalg_lstsq default
linalg_lu default
linalg_lu_factor default
linalg_lu_factor_ex default
linalg_matmul default
linalg_matrix_exp default
linalg_matrix_norm default str_ord
linalg_matrix_power default
linalg_matrix_rank atol_rtol_float atol_rtol_tensor default tol_tensor
linalg_multi_dot default
linalg_norm default ord_str
linalg_pinv atol_rtol_float atol_rtol_tensor default rcond_tensor
linalg_qr default
linalg_slogdet default
linalg_solve default
linalg_solve_ex default
linalg_solve_triangular default
linalg_svd default
linalg_svdvals default
linalg_tensorinv default
linalg_tensorsolve default
linalg_vander default
linalg_vecdot default
linalg_vector_norm default
linear default
linear_backward default
linspace Scalar_Tensor Tensor_Scalar Tensor_Tensor default
log default
log10 default
log1p default
log2 default
log_normal default
log_sigmoid default
log_sigmoid_backward default
log_sigmoid_forward default
log_softmax int
logaddexp default
logaddexp2 default
logcumsumexp default
logdet default
logical_and default
logical_not default
logical_or default
logical_xor default
logit default
logit_backward default
logspace Scalar_Tensor Tensor_Scalar Tensor_Tensor default
logsumexp default
lstm_cell default
lt Scalar Tensor
mH default
mT default
margin_ranking_loss default
masked_fill Scalar Tensor
masked_scatter default
masked_scatter_backward default
masked_select default
masked_select_backward default
matmul default
matmul_backward default
matrix_H default
matrix_exp default
matrix_exp_backward default
matrix_power default
max default dim other
max_pool1d default
max_pool1d_with_indices default
max_pool2d default
max_pool2d_backward default
max_pool2d_with_indices default
max_pool2d_with_indices_backward default
max_pool3d default
max_pool3d_with_indices default
max_pool3d_with_indices_backward default
max_unpool2d default
max_unpool3d default
maximum default
mean default dim
median default dim
meshgrid default indexing
min default dim other
minimum default
mish default
mish_backward default
mm default dtype
mode default
moveaxis int intlist
movedim int intlist
mse_loss default
mse_loss_backward default
msort default
mul Scalar Tensor
multi_margin_loss default
multi_margin_loss_backward default
multilabel_margin_loss default
multilabel_margin_loss_backward default
multilabel_margin_loss_forward default
multinomial default
multiply Scalar Tensor
mv default
mvlgamma default
nan_to_num default
nanmean default
nanmedian default dim
nansum default
narrow Tensor default
narrow_copy default
native_batch_norm default
native_batch_norm_backward default
native_channel_shuffle default
native_dropout default
native_dropout_backward default
native_group_norm default
native_group_norm_backward default
native_layer_norm default
native_layer_norm_backward default
native_norm ScalarOpt_dim_dtype default
ne Scalar Tensor
neg default
negative default
new_empty default
new_empty_strided default
new_full default
new_ones default
new_zeros default
nextafter default
nll_loss default
nll_loss2d default
nll_loss2d_backward default
nll_loss2d_forward default
nll_loss_backward default
nll_loss_forward default
nll_loss_nd default
nonzero default
nonzero_static default
norm Scalar ScalarOpt_dim ScalarOpt_dim_dtype ScalarOpt_dtype
norm_except_dim default
normal Tensor_Tensor Tensor_float float_Tensor float_float
normal_functional default
not_equal Scalar Tensor
nuclear_norm default dim
numpy_T default
one_hot default
ones default
ones_like default
orgqr default
ormqr default
outer default
pad default
pad_sequence default
pairwise_distance default
pdist default
permute default
permute_copy default
pinverse default
pixel_shuffle default
pixel_unshuffle default
poisson_nll_loss default
polar default
polygamma default
positive default
pow Scalar Tensor_Scalar Tensor_Tensor
prelu default
prod default dim_int
put default
qr default
rad2deg default
rand default
rand_like default
randint default low
randint_like Tensor default low_dtype
randn default
randn_like default
randperm default
ravel default
real default
reciprocal default
reflection_pad1d default
reflection_pad1d_backward default
reflection_pad2d default
reflection_pad2d_backward default
reflection_pad3d default
reflection_pad3d_backward default
relu default
relu6 default
remainder Scalar Scalar_Tensor Tensor
renorm default
repeat default
repeat_interleave Tensor self_Tensor self_int
replication_pad1d default
replication_pad1d_backward default
replication_pad2d default
replication_pad2d_backward default
replication_pad3d default
replication_pad3d_backward default
reshape default
reshape_as default
resolve_conj default
resolve_neg default
rms_norm default
rnn_relu_cell default
rnn_tanh_cell default
roll default
rot90 default
round decimals default
row_stack default
rrelu_with_noise_backward default
rrelu_with_noise_functional default
rsqrt default
rsub Scalar Tensor
scalar_tensor default
scaled_dot_product_attention default
scatter reduce src value value_reduce
scatter_add default
scatter_reduce two
searchsorted Scalar Tensor
select int
select_backward default
select_copy int
select_scatter default
selu default
sgn default
sigmoid default
sigmoid_backward default
sign default
signbit default
silu default
silu_backward default
sin default
sinc default
sinh default
slice Tensor
slice_backward default
slice_copy Tensor
slice_inverse default
slice_scatter default
slogdet default
smooth_l1_loss default
smooth_l1_loss_backward default
soft_margin_loss default
soft_margin_loss_backward default
softmax int
softplus default
softplus_backward default
softshrink default
softshrink_backward default
sort default stable
special_airy_ai default
special_bessel_j0 default
special_bessel_j1 default
special_bessel_y0 default
special_bessel_y1 default
special_digamma default
special_entr default
special_erf default
special_erfc default
special_erfcx default
special_erfinv default
special_exp2 default
special_expit default
special_expm1 default
special_gammainc default
special_gammaincc default
special_gammaln default
special_i0 default
special_i0e default
special_i1 default
special_i1e default
special_log1p default
special_log_ndtr default
special_log_softmax default
special_logit default
special_logsumexp default
special_modified_bessel_i0 default
special_modified_bessel_i1 default
special_modified_bessel_k0 default
special_modified_bessel_k1 default
special_multigammaln default
special_ndtr default
special_ndtri default
special_polygamma default
special_psi default
special_round default
special_scaled_modified_bessel_k0 default
special_scaled_modified_bessel_k1 default
special_sinc default
special_softmax default
special_spherical_bessel_j0 default
special_xlog1py default other_scalar self_scalar
special_xlogy default other_scalar self_scalar
special_zeta default other_scalar self_scalar
split Tensor sizes
split_copy Tensor
split_with_sizes default
split_with_sizes_copy default
sqrt default
square default
squeeze default dim dims
squeeze_copy default dim dims
stack default
std correction default dim
std_mean correction default dim
stft center default
sub Scalar Tensor
subtract Scalar Tensor
sum default dim_IntList
sum_to_size default
svd default
swapaxes default
swapdims default
t default
t_copy default
take default
take_along_dim default
tan default
tanh default
tanh_backward default
tensor_split indices sections tensor_indices_or_sections
tensordot default
threshold default
threshold_backward default
tile default
to device dtype dtype_layout other
to_dense default
to_dense_backward default
topk default
trace default
trace_backward default
transpose int
transpose_copy int
trapezoid dx x
trapz dx x
triangular_solve default
tril default
tril_indices default
triplet_margin_loss default
triu default
triu_indices default
true_divide Scalar Tensor
trunc default
type_as default
unbind int
unbind_copy int
unflatten int
unflatten_dense_tensors default
unfold default
unfold_backward default
unfold_copy default
uniform default
unique_consecutive default
unique_dim default
unique_dim_consecutive default
unsafe_chunk default
unsafe_split Tensor
unsafe_split_with_sizes default
unsqueeze default
unsqueeze_copy default
upsample_bicubic2d default vec
upsample_bicubic2d_backward default
upsample_bilinear2d default vec
upsample_bilinear2d_backward default
upsample_linear1d default vec
upsample_linear1d_backward default
upsample_nearest1d default vec
upsample_nearest1d_backward default
upsample_nearest2d default vec
upsample_nearest2d_backward default
upsample_nearest3d default vec
upsample_nearest3d_backward default
upsample_trilinear3d default vec
upsample_trilinear3d_backward default
value_selecting_reduction_backward default
vander default
var correction default dim
var_mean correction default dim
vdot default
view default dtype
view_as default
view_as_complex default
view_as_complex_copy default
view_as_real default
view_as_real_copy default
view_copy default dtype
vsplit array int
vstack default
where Scalar ScalarOther ScalarSelf default self
xlogy Scalar_Other Scalar_Self Tensor
zero default
zeros default
zeros_like default
)";
}

}  // namespace heterog::operators
